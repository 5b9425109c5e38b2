// Collectives on host memory over a SlotTransport: every rank gets every rank's part and reduces in
// rank order, so all have the same bits. One exchange a slot's worth of data: the least waiting,
// which is what decode needs; a group of N sends N - 1 times its data, which suits the few ranks of
// a tensor-parallel group.
#ifndef DISTRIBUTED_COMM_SLOT_COMMUNICATOR_H_
#define DISTRIBUTED_COMM_SLOT_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "distributed/comm/slot_transport.h"
#include "engine/parallel/communicator.h"

namespace millrace {

class SlotCommunicator final : public Communicator {
 public:
  explicit SlotCommunicator(std::unique_ptr<SlotTransport> transport);

  int32_t rank() const override { return transport_->rank(); }
  int32_t size() const override { return transport_->size(); }
  absl::Status AllReduceSum(const TensorView& x, Stream stream) override;
  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream stream) override;
  // Every rank's slots reach all others, so each sees what it does not take. Meant for small
  // groups.
  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream stream) override;
  absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) override;
  absl::Status Barrier(Stream stream) override;
  void Abort() override { transport_->Abort(); }

  std::string Describe() const { return transport_->Describe(); }

 private:
  // What a rank sends in an AllToAll, in elements: where this rank's part begins, and all.
  struct Sent {
    int64_t begin = 0;
    int64_t total = 0;
  };
  // By rank. Internal, and the communicator is dead, when a rank does not send what is wanted.
  absl::StatusOr<std::vector<Sent>> ExchangeCounts(const int64_t* send, const int64_t* receive);

  // A dead transport fails every later round; names the operation.
  absl::Status Exchange(const char* operation, int64_t bytes);

  const std::unique_ptr<SlotTransport> transport_;
  absl::Status dead_;  // the first error
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_SLOT_COMMUNICATOR_H_
