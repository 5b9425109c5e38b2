// Joins the ranks of a group on CUDA devices.
#ifndef DISTRIBUTED_COMM_CONNECT_NCCL_H_
#define DISTRIBUTED_COMM_CONNECT_NCCL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/key_value_store.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/device.h"

namespace millrace {

// Every rank calls it, each with a GPU of its own, on the thread that will use the communicator; it
// returns once all have. Of `options` rank, size and the two time-outs count.
//
// The collectives are enqueued on their stream and return before they are done, Barrier included:
// on the device it holds back what follows on the stream. They can be captured in a graph. The host
// waits, at most options.timeout, only where NCCL has to make a connection first. So a lost peer
// shows either as UNAVAILABLE of a later collective, or as a stream whose work does not end: it
// ends, with results of no meaning, on Abort().
// Sums of more than two ranks are not taken in rank order, and in bf16 they round at each step;
// every rank gets the same bits.
// Destroy the graphs that hold collectives first: the destructor waits for them, though not for
// ever.
//
// `device` outlives the communicator. Unimplemented in a build without NCCL, NotFound where the
// library cannot be loaded, InvalidArgument for a device that is not CUDA, Unavailable,
// DeadlineExceeded.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const ConnectOptions& options,
                                                          KeyValueStore& store, Device& device);

// "NCCL 2.28.9"; "" in a build without NCCL or where the library cannot be loaded.
std::string NcclVersion();

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_CONNECT_NCCL_H_
