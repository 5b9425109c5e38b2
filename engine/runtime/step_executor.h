// Runs step plans on one rank or many. Implementations: LocalExecutor (this process), WorkerGroup
// (worker processes), fakes in tests.
#ifndef ENGINE_RUNTIME_STEP_EXECUTOR_H_
#define ENGINE_RUNTIME_STEP_EXECUTOR_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/scheduler/step_plan.h"

namespace millrace {

// Engine thread only.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;

  // Hands the plan to every rank and returns without waiting for it. At most two plans may be
  // launched and not collected. UNAVAILABLE when a rank is lost.
  virtual absl::Status Launch(const StepPlan& plan) = 0;

  // Waits for the oldest launched plan. An error means that the step and every later one is lost:
  // UNAVAILABLE (a rank is gone; the message names it) or INTERNAL (an op failed).
  virtual absl::StatusOr<StepResult> Collect() = 0;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_EXECUTOR_H_
