// NCCL's functions, found when ranks on GPUs first join (kernels/cuda/dynamic_library.h says why).
// Only code built with NCCL's header includes this.
#ifndef DISTRIBUTED_COMM_NCCL_LIBRARY_H_
#define DISTRIBUTED_COMM_NCCL_LIBRARY_H_

#include <nccl.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

struct NcclLibrary {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclCommGetAsyncError) get_async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;

  // OK, or what NCCL says about `result`, as "WHAT: ncclRemoteError: ...". Unavailable when a peer
  // is or may be gone. `comm` may be null.
  absl::Status StatusOf(ncclResult_t result, const char* what, ncclComm_t comm) const;

  // Stays loaded for the life of the process. NotFound naming the library or the function. Any
  // thread.
  static absl::StatusOr<NcclLibrary> Load();
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_NCCL_LIBRARY_H_
