// A group whose ranks are threads of one process, all on host memory.
#ifndef ENGINE_PARALLEL_THREAD_GROUP_H_
#define ENGINE_PARALLEL_THREAD_GROUP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "engine/parallel/communicator.h"

namespace millrace {

// Makes one communicator per rank; each is used by one thread. Sums are taken in rank order, so all
// ranks get the same bits in every run (bf16: summed in f32, rounded once). A collective that waits
// longer than `timeout` for its peers fails on every rank.
class ThreadGroup final {
 public:
  // REQUIRES: size >= 1.
  explicit ThreadGroup(int32_t size, absl::Duration timeout = absl::Minutes(5));
  ~ThreadGroup();  // REQUIRES: no collective in progress
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  // Owned by the group. REQUIRES: 0 <= rank < size().
  Communicator& communicator(int32_t rank) { return *ranks_[static_cast<size_t>(rank)]; }

 private:
  class Shared;
  class Rank;

  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

}  // namespace millrace

#endif  // ENGINE_PARALLEL_THREAD_GROUP_H_
