// Collectives between the ranks of one group. Implementations live in distributed/comm (gloo,
// NCCL); ThreadGroup here joins ranks that are threads of one process.
#ifndef ENGINE_PARALLEL_COMMUNICATOR_H_
#define ENGINE_PARALLEL_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/all_reduce/all_reduce.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// All ranks call the same collectives in the same order with the same shapes. Worker thread only,
// except Abort. Tensors are contiguous, on the communicator's device, ordered on `stream`.
// Errors: UNAVAILABLE naming the operation when a peer is gone, DEADLINE_EXCEEDED on time-out;
// after an error the communicator is dead and every later call fails.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  // x[i] = sum over ranks of x[i], in place; f32 or bf16. Every rank gets the same bits.
  virtual absl::Status AllReduceSum(const TensorView& x, Stream stream) = 0;
  // out = concatenation over ranks, in rank order, of `in`; ranks may differ in size, and
  // `counts[r]` elements come from rank r. Any dtype. out.size() == sum of counts.
  virtual absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                                 Stream stream) = 0;
  // Part r of `in`, the next send[r] elements of it, goes to rank r; part r of `out`, receive[r]
  // elements, comes from rank r, which must send as many. Any dtype. in.size() and out.size() are
  // the sums of their counts.
  virtual absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                                const int64_t* receive, Stream stream) = 0;
  // Every rank's x becomes root's.
  virtual absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) = 0;
  virtual absl::Status Barrier(Stream stream) = 0;

  // Through which AllReduceRmsNorm sums messages of up to peers()->max_bytes faster than
  // AllReduceSum does; null where the ranks have nothing of the kind.
  virtual const AllReducePeers* peers() const { return nullptr; }

  // Any thread: makes running and later collectives fail soon instead of waiting.
  virtual void Abort() = 0;
};

// The groups that a rank belongs to. Borrows.
struct RankGroups {
  // Where there is one batch for all ranks.
  RankGroups(Communicator& all) : tensor(all), world(all) {}  // NOLINT: the usual case
  // `world_ranks`: tensor groups of equal size one after the other, in rank order.
  RankGroups(Communicator& tensor_ranks, Communicator& world_ranks)
      : tensor(tensor_ranks), world(world_ranks) {}

  int32_t data_parallel_size() const { return world.size() / tensor.size(); }
  int32_t data_parallel_rank() const { return world.rank() / tensor.size(); }

  Communicator& tensor;  // those that share a batch
  Communicator& world;   // those of all batches, which step together
  // Ranks, this one among them, that are known to share its device's memory.
  int32_t sharing_memory = 1;
};

// The communicator of a group of one: every collective is a no-op or a copy.
class SingleRank final : public Communicator {
 public:
  explicit SingleRank(Device& device) : device_(device) {}
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  absl::Status AllReduceSum(const TensorView& x, Stream stream) override;
  absl::Status AllGather(const TensorView& in, const int64_t* counts, const TensorView& out,
                         Stream stream) override;
  absl::Status AllToAll(const TensorView& in, const int64_t* send, const TensorView& out,
                        const int64_t* receive, Stream stream) override;
  absl::Status Broadcast(const TensorView& x, int32_t root, Stream stream) override;
  absl::Status Barrier(Stream stream) override;
  void Abort() override {}

 private:
  Device& device_;
};

}  // namespace millrace

#endif  // ENGINE_PARALLEL_COMMUNICATOR_H_
