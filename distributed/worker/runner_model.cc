#include "distributed/worker/runner_model.h"

#include <utility>

#include "engine/runtime/model_runner.h"
#include "engine/weights/checkpoint.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

class RunnerModel final : public RankModel {
 public:
  explicit RunnerModel(std::unique_ptr<ModelRunner> runner) : runner_(std::move(runner)) {}
  absl::StatusOr<RankMemory> Memory() override { return runner_->memory(); }
  int32_t VocabSize() const override {
    return static_cast<int32_t>(runner_->model_config().vocab_size);
  }
  absl::Status AllocateCache(int32_t num_pages) override {
    return runner_->AllocateCache(num_pages);
  }
  absl::Status Launch(const StepPlan& plan) override { return runner_->Launch(plan); }
  int InFlight() const override { return runner_->in_flight(); }
  absl::StatusOr<bool> Ready() override { return runner_->Ready(); }
  absl::StatusOr<StepResult> Collect() override { return runner_->Collect(); }

 private:
  const std::unique_ptr<ModelRunner> runner_;
};

}  // namespace

absl::StatusOr<std::string> RunnerModelFactory::Fingerprint(const std::string& dir) {
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(dir);
  if (absl::IsNotFound(checkpoint.status())) return std::string();
  if (!checkpoint.ok()) return checkpoint.status();
  return (*checkpoint)->Fingerprint();
}

absl::StatusOr<std::unique_ptr<RankModel>> RunnerModelFactory::Load(const RunnerConfig& config,
                                                                    Device& device,
                                                                    const RankGroups& groups,
                                                                    const Progress& progress) {
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   ModelRunner::Create(config, device, groups, progress));
  return std::make_unique<RunnerModel>(std::move(runner));
}

}  // namespace millrace
