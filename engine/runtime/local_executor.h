// Runs every rank of a group as a thread of this process.
#ifndef ENGINE_RUNTIME_LOCAL_EXECUTOR_H_
#define ENGINE_RUNTIME_LOCAL_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/config/model_config.h"
#include "engine/layers/weight_loader.h"
#include "engine/parallel/thread_group.h"
#include "engine/runtime/decode_graphs.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/step_executor.h"
#include "kernels/core/device.h"

namespace millrace {

struct LocalExecutorConfig {
  RunnerConfig runner;
  int32_t tensor_parallel_size = 1;  // of each of runner.data_parallel_size groups
  DeviceType device = DeviceType::kCpu;
  int32_t threads = 1;      // CPU threads of all ranks together; each rank gets at least one
  int32_t cuda_device = 0;  // CUDA, which takes one rank here: more are processes of their own
};

// Engine thread only. Each rank has its own thread, device and model shard.
class LocalExecutor final : public StepExecutor {
 public:
  // Loads the model on all ranks and returns when every one is ready, or with the error of the rank
  // that failed first. `progress` reports rank 0's loading, on rank 0's thread.
  static absl::StatusOr<std::unique_ptr<LocalExecutor>> Create(const LocalExecutorConfig& config,
                                                               const LoadProgress& progress = {});
  // Ends running steps with an error and joins the threads.
  ~LocalExecutor() override;

  // By rank, group after group.
  const std::vector<RankMemory>& memory() const { return memory_; }
  const ModelConfig& model_config() const { return model_config_; }

  // On every rank. Once, before the first Launch. `num_pages` is what the scheduler hands out.
  // `progress` reports rank 0's captured graphs, on rank 0's thread.
  absl::Status AllocateCache(int32_t num_pages, const DecodeGraphs::Progress& progress = {});

  absl::Status Launch(const StepPlan& plan) override;
  absl::StatusOr<StepResult> Collect() override;

 private:
  class Rank;

  LocalExecutor(int32_t tensor_size, int32_t data_size);
  // Runs on every rank's thread and waits; the most telling error of all ranks.
  template <typename Body>
  absl::Status OnAllRanks(const Body& body);

  const int32_t tensor_size_;
  ThreadGroup world_;
  std::vector<std::unique_ptr<ThreadGroup>> tensor_groups_;  // none where the world is the only one
  std::vector<std::unique_ptr<Rank>> ranks_;  // after the groups: its threads use them
  std::vector<RankMemory> memory_;
  ModelConfig model_config_;
  int32_t launched_ = 0;  // and not collected
  absl::Status failure_;  // the first error; everything fails with it from then on
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_LOCAL_EXECUTOR_H_
