// Schedules several groups of ranks that step together, each with its own sequences and pages.
// Engine thread only.
#ifndef ENGINE_SCHEDULER_DATA_PARALLEL_SCHEDULER_H_
#define ENGINE_SCHEDULER_DATA_PARALLEL_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/request/request.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/step_plan.h"

namespace millrace {

// One Scheduler a group, and of their plans one: what Scheduler's methods say holds of all groups
// together. A sequence stays in the group that it was given to.
class DataParallelScheduler final {
 public:
  // REQUIRES: config.Validate() is OK. The sizes in `config` are those of one group.
  explicit DataParallelScheduler(const SchedulerConfig& config);

  // To the group, of those with a free slot if there are any, that has the longest prefix of the
  // prompt in its cache, and of equals to the one with the fewest sequences.
  absl::Status Admit(Request request);

  void Finish(SequenceId id, FinishReason reason, absl::Status status = absl::OkStatus());
  void FinishExpired(absl::Time now);
  // Sequences by group, in the order of the groups.
  std::optional<StepPlan> Next();
  void Commit(const StepResult& result);
  void FailAll(const absl::Status& status);
  std::vector<SchedulerEvent> TakeEvents();
  void FlushPrefixCache();
  // Sums over the groups.
  SchedulerStats stats() const;
  absl::Status CheckIntegrity() const;

 private:
  // What a group has in a step.
  struct Part {
    size_t group = 0;
    int64_t step = 0;  // as the group counts
    size_t sequences = 0;
  };
  struct Launched {
    int64_t step = 0;
    std::vector<Part> parts;
  };

  size_t GroupFor(const Request& request) const;

  const SchedulerConfig config_;
  std::vector<std::unique_ptr<Scheduler>> groups_;
  absl::flat_hash_map<SequenceId, size_t> group_of_;  // of live sequences
  std::deque<Launched> launched_;
  int64_t next_step_ = 1;
};

}  // namespace millrace

#endif  // ENGINE_SCHEDULER_DATA_PARALLEL_SCHEDULER_H_
