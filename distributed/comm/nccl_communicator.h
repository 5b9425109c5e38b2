// Collectives on CUDA devices by NCCL. Only code built with NCCL includes this; connect_nccl.h says
// what it does.
#ifndef DISTRIBUTED_COMM_NCCL_COMMUNICATOR_H_
#define DISTRIBUTED_COMM_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/functional/function_ref.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "distributed/comm/nccl_library.h"
#include "engine/parallel/communicator.h"

namespace millrace {

class NcclCommunicator final : public Communicator {
 public:
  // Takes a communicator that does not block (ncclConfig_t::blocking == 0) and is on the current
  // device, GPU `ordinal`. It may still be on its way: Ready() waits for it.
  NcclCommunicator(const NcclLibrary& nccl, ncclComm_t comm, int32_t rank, int32_t size,
                   int ordinal);
  ~NcclCommunicator() override;  // REQUIRES: no call in progress

  // Once, before anything else: waits until all ranks have joined. `timeout` from now on bounds a
  // collective's wait for a connection.
  absl::Status Ready(absl::Time deadline, absl::Duration timeout, Device& device);

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  absl::Status AllReduceSum(const TensorView& x, Stream stream) override;
  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream stream) override;
  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream stream) override;
  absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) override;
  absl::Status Barrier(Stream stream) override;
  void Abort() override;

 private:
  // Runs `call`, which hands work to NCCL, and waits until NCCL has enqueued it.
  absl::Status Enqueue(const char* operation, absl::FunctionRef<ncclResult_t()> call);
  // Waits while `result` is ncclInProgress. `lock` is of mu_ and is released meanwhile.
  absl::Status Settle(std::unique_lock<std::mutex>& lock, const char* operation,
                      ncclResult_t result, absl::Time deadline);
  // The communicator is dead from now on. mu_ is held.
  absl::Status Kill(absl::Status why);

  const NcclLibrary nccl_;
  const int32_t rank_;
  const int32_t size_;
  const int ordinal_;
  absl::Duration timeout_;
  Buffer barrier_word_;  // one float, 0

  std::mutex mu_;
  const ncclComm_t comm_;  // not touched once dead_ is an error; calls are guarded by mu_
  absl::Status dead_;      // the first error; guarded by mu_
  std::shared_ptr<absl::Notification> freed_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_NCCL_COMMUNICATOR_H_
