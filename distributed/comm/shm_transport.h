// Slots in memory that all ranks of one host map. A rank waits by looking for a moment, then asleep
// on a futex.
#ifndef DISTRIBUTED_COMM_SHM_TRANSPORT_H_
#define DISTRIBUTED_COMM_SHM_TRANSPORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/comm/shm_segment.h"
#include "distributed/comm/slot_transport.h"

namespace millrace {

class ShmTransport final : public SlotTransport {
 public:
  // `timeout` bounds one Exchange.
  ShmTransport(std::unique_ptr<ShmSegment> segment, int32_t rank, int32_t size,
               absl::Duration timeout);
  ~ShmTransport() override;  // the others' waits for this rank fail from then on

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  int64_t slot_bytes() const override { return ShmSegment::kSlotBytes; }
  std::byte* outgoing() override { return segment_->slot((round_ + 1) & 1, rank_); }
  absl::Status Exchange(int64_t bytes) override;
  const std::byte* incoming(int32_t rank) const override {
    return segment_->slot(round_ & 1, rank);
  }
  void Abort() override;
  std::string Describe() const override { return "shared memory"; }

 private:
  absl::Status WaitFor(int32_t peer);
  // One nap of WaitFor; false when the wait has to end with *status.
  bool Sleep(int32_t peer, absl::Time deadline, absl::Status* status);
  bool Arrived(int32_t peer) const;
  bool ProcessIsGone(int32_t peer) const;
  int32_t LeftBy() const;  // the first rank that has left, -1: none
  absl::Status Gone(int32_t who) const;

  const std::unique_ptr<ShmSegment> segment_;
  const int32_t rank_;
  const int32_t size_;
  const absl::Duration timeout_;
  std::vector<int> pidfds_;  // by rank; -1: not watched
  uint32_t round_ = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_SHM_TRANSPORT_H_
