// A ready group of workers as a StepExecutor: a plan goes to every rank at once; a step is done
// when all have answered.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_GROUP_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_GROUP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/step_wire/step_wire.h"
#include "engine/runtime/step_executor.h"

namespace millrace {

// What the executor and the hub share of a group. Any thread.
class GroupSteps final {
 public:
  // Hands serialized bytes to a rank; must not block.
  using SendToRank = std::function<void(int32_t rank, std::shared_ptr<const std::string> bytes)>;

  struct Overdue {
    int64_t step = 0;
    std::vector<int32_t> ranks;  // that have not answered
  };

  GroupSteps(int32_t world, const StepLimits& limits, SendToRank send);

  // As StepExecutor's.
  absl::Status Launch(const StepPlan& plan);
  absl::StatusOr<StepResult> Collect();

  // A rank's answer. InvalidArgument when it is not the answer to its oldest unanswered step.
  absl::Status OnStepDone(int32_t rank, const worker::StepDone& done);
  // Ends every wait that is not over yet, and everything later, with `reason`.
  void MarkLost(const absl::Status& reason);
  // The oldest step, if it has been running for longer than `limit`.
  std::optional<Overdue> CheckOverdue(absl::Time now, absl::Duration limit) const;

 private:
  // What a sequence's result has to have.
  struct Expected {
    int32_t group = 0;
    int32_t slot = 0;
    bool sample = false;
    int32_t scores = 0;
    int32_t logits = 0;
  };
  struct Pending {
    int64_t step = 0;
    absl::Time begin;  // when it became the oldest, or was launched
    std::vector<Expected> expected;
    std::vector<bool> answered;  // by rank
    StepResult result;           // of all groups
  };

  // Takes what a group's first rank brings.
  static absl::Status TakeAnswers(int32_t group, StepResult result, Pending& pending);
  static absl::Status CheckAnswer(const Expected& want, const SequenceResult& got);
  static bool Done(const Pending& pending);

  const int32_t world_;
  const int32_t group_size_;  // ranks of a group
  const StepLimits limits_;
  const SendToRank send_;

  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;  // guarded by mu_
  absl::Status lost_;            // guarded by mu_
};

class WorkerGroup final : public StepExecutor {
 public:
  explicit WorkerGroup(std::shared_ptr<GroupSteps> steps) : steps_(std::move(steps)) {}
  absl::Status Launch(const StepPlan& plan) override { return steps_->Launch(plan); }
  absl::StatusOr<StepResult> Collect() override { return steps_->Collect(); }

 private:
  const std::shared_ptr<GroupSteps> steps_;
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_WORKER_GROUP_H_
