#include "distributed/comm/nccl_library.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cuda/dynamic_library.h"

namespace millrace {

namespace {

const char* NameOf(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    default:
      return "an NCCL error";
  }
}

}  // namespace

absl::Status NcclLibrary::StatusOf(ncclResult_t result, const char* what, ncclComm_t comm) const {
  if (result == ncclSuccess) return absl::OkStatus();
  const char* detail = last_error(comm);
  std::string text = absl::StrCat(what, ": ", NameOf(result), ": ", error_string(result));
  if (detail != nullptr && *detail != '\0') absl::StrAppend(&text, ": ", detail);
  switch (result) {
    case ncclRemoteError:
    case ncclSystemError:  // a connection that the peer closed is reported so too
      return absl::UnavailableError(text);
    case ncclInvalidUsage:  // two ranks on one GPU, for example
      return absl::FailedPreconditionError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::StatusOr<NcclLibrary> NcclLibrary::Load() {
  ASSIGN_OR_RETURN(const DynamicLibrary library,
                   DynamicLibrary::Load(absl::StrCat("libnccl.so.", NCCL_MAJOR),
                                        "ranks on GPUs need NCCL: install it, or add its folder to "
                                        "LD_LIBRARY_PATH"));
  NcclLibrary f;
  RETURN_IF_ERROR(library.Find("ncclGetVersion", &f.get_version));
  RETURN_IF_ERROR(library.Find("ncclGetErrorString", &f.error_string));
  RETURN_IF_ERROR(library.Find("ncclGetLastError", &f.last_error));
  RETURN_IF_ERROR(library.Find("ncclGetUniqueId", &f.get_unique_id));
  RETURN_IF_ERROR(library.Find("ncclCommInitRankConfig", &f.init_rank));
  RETURN_IF_ERROR(library.Find("ncclCommAbort", &f.comm_abort));
  RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", &f.get_async_error));
  RETURN_IF_ERROR(library.Find("ncclGroupStart", &f.group_start));
  RETURN_IF_ERROR(library.Find("ncclGroupEnd", &f.group_end));
  RETURN_IF_ERROR(library.Find("ncclAllReduce", &f.all_reduce));
  RETURN_IF_ERROR(library.Find("ncclAllGather", &f.all_gather));
  RETURN_IF_ERROR(library.Find("ncclBroadcast", &f.broadcast));
  RETURN_IF_ERROR(library.Find("ncclSend", &f.send));
  RETURN_IF_ERROR(library.Find("ncclRecv", &f.receive));
  return f;
}

}  // namespace millrace
