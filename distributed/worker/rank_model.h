// What a worker runs: a model's part on this rank. The real one wraps ModelRunner; tests bring
// their own.
#ifndef DISTRIBUTED_WORKER_RANK_MODEL_H_
#define DISTRIBUTED_WORKER_RANK_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/parallel/communicator.h"
#include "engine/runtime/runner_config.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"

namespace millrace {

// One thread.
class RankModel {
 public:
  virtual ~RankModel() = default;
  virtual absl::StatusOr<RankMemory> Memory() = 0;
  virtual int32_t VocabSize() const = 0;
  virtual absl::Status AllocateCache(int32_t num_pages) = 0;
  // As ModelRunner's: steps are launched ahead, and collected in order once they are ready.
  virtual absl::Status Launch(const StepPlan& plan) = 0;
  virtual int InFlight() const = 0;
  virtual absl::StatusOr<bool> Ready() = 0;
  virtual absl::StatusOr<StepResult> Collect() = 0;
};

class RankModelFactory {
 public:
  using Progress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

  virtual ~RankModelFactory() = default;
  // Identifies the checkpoint in `dir`, or "" where there is nothing to compare.
  virtual absl::StatusOr<std::string> Fingerprint(const std::string& dir) = 0;
  // `device` and `groups`' communicators outlive the model. `progress` is called from time to time.
  virtual absl::StatusOr<std::unique_ptr<RankModel>> Load(const RunnerConfig& config,
                                                          Device& device, const RankGroups& groups,
                                                          const Progress& progress) = 0;
};

}  // namespace millrace

#endif  // DISTRIBUTED_WORKER_RANK_MODEL_H_
