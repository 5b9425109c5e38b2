// The memory that the ranks of one host share, and the agreement on it.
#ifndef DISTRIBUTED_COMM_SHM_SEGMENT_H_
#define DISTRIBUTED_COMM_SHM_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/comm/key_value_store.h"

namespace millrace {

inline constexpr int32_t kMaxShmRanks = 64;

// One mapping. Lives in no file system: it is gone with the last process that maps it.
class ShmSegment final {
 public:
  static constexpr int64_t kSlotBytes = 256 * 1024;

  // On a cache line of its own, so that a rank's waiting does not slow another's.
  struct alignas(64) RankState {
    std::atomic<uint32_t> round;    // rounds this rank has filled its slot for; a futex
    std::atomic<uint32_t> waiters;  // ranks asleep on `round`
    std::atomic<int32_t> pid;
  };
  struct Header {
    std::array<std::byte, 32> token;         // tells this segment from any other
    alignas(64) std::atomic<uint32_t> left;  // 1 + the first rank that has left, 0: none
    std::array<RankState, kMaxShmRanks> ranks;
  };

  // Every rank calls it. Null where they do not all see the same memory, because they are on
  // several hosts or in containers of their own; all ranks then get null.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Connect(int32_t rank, int32_t size,
                                                             KeyValueStore& store,
                                                             absl::Duration timeout);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  Header& header() { return *static_cast<Header*>(base_); }
  std::byte* slot(int32_t set, int32_t rank) const;

 private:
  ShmSegment(void* base, int64_t bytes, int32_t size) : base_(base), bytes_(bytes), size_(size) {}
  static std::unique_ptr<ShmSegment> Map(int fd, int32_t size);
  // Rank 0: makes the segment and publishes where it is, "" when it cannot.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Make(int32_t size, KeyValueStore& store,
                                                          int* fd);
  // Other ranks: null when there is none to be found.
  static absl::StatusOr<std::unique_ptr<ShmSegment>> Find(int32_t size, KeyValueStore& store,
                                                          absl::Duration timeout);

  void* const base_;
  const int64_t bytes_;
  const int32_t size_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_SHM_SEGMENT_H_
