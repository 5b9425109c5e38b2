// Memory of each rank's GPU that all ranks of a group can write: what kernels/all_reduce works on.
#ifndef DISTRIBUTED_COMM_PEER_MEMORY_H_
#define DISTRIBUTED_COMM_PEER_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/key_value_store.h"
#include "kernels/all_reduce/all_reduce.h"
#include "kernels/core/device.h"

namespace millrace {

// REQUIRES on destruction: no all-reduce on it runs, on any rank.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  virtual const AllReducePeers& peers() const = 0;
  // Any thread, any number of times: all-reduces of this rank, running or later, end without
  // waiting for other ranks; their results mean nothing.
  virtual absl::Status Stop() = 0;
};

// Every rank calls it; it returns once all have. The memory is passed on as CUDA IPC handles, or as
// it is between ranks of one process. Of `options` rank, size and connect_timeout count; the
// largest message is `max_bytes` on every rank. `device` outlives the result.
//
// FailedPrecondition, on all ranks alike, when some rank cannot reach the memory of another: on
// several hosts, or GPUs without peer access. Unimplemented in a build without CUDA,
// InvalidArgument for another device or more than kAllReduceMaxRanks, Unavailable,
// DeadlineExceeded.
absl::StatusOr<std::unique_ptr<PeerMemory>> ConnectPeerMemory(const ConnectOptions& options,
                                                              int64_t max_bytes,
                                                              KeyValueStore& store, Device& device);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_PEER_MEMORY_H_
