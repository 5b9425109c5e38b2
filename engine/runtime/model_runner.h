// One rank: turns step plans into tokens.
#ifndef ENGINE_RUNTIME_MODEL_RUNNER_H_
#define ENGINE_RUNTIME_MODEL_RUNNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cache/kv_cache.h"
#include "engine/config/model_config.h"
#include "engine/models/load_model.h"
#include "engine/models/model.h"
#include "engine/parallel/communicator.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/slot_table.h"
#include "engine/runtime/step_batch.h"
#include "engine/runtime/step_outputs.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"
#include "kernels/core/op_context.h"

namespace millrace {

// Worker thread. Borrows device and communicator, which must outlive it. All ranks of a group get
// the same config, the same number of pages and the same plans in the same order.
class ModelRunner final {
 public:
  // Loads this rank's part of the model and allocates everything but the cache, for the largest
  // step that `config` allows. `progress` may be empty. Errors say what to change: InvalidArgument
  // (config, checkpoint, split), NotFound (files), ResourceExhausted (memory).
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(const RunnerConfig& config,
                                                             Device& device, Communicator& comm,
                                                             const LoadProgress& progress);
  ~ModelRunner();

  const ModelConfig& model_config() const { return model_config_; }

  // What the cache can be sized by. available_bytes is asked of the device at each call.
  absl::StatusOr<RankMemory> memory() const;

  // Once. FailedPrecondition the second time.
  absl::Status AllocateCache(int32_t num_pages);

  // Computes the step. On rank 0 the result is complete; the others know the sampled ids only.
  // InvalidArgument, nothing done, for a plan with any number out of range (see SlotTable);
  // FailedPrecondition before AllocateCache. Any other error leaves the rank unusable.
  // NaN or Inf in a row of logits fails only its own sequence (numeric_fault).
  absl::StatusOr<StepResult> Step(const StepPlan& plan);

 private:
  ModelRunner(const RunnerConfig& config, Device& device, Communicator& comm)
      : config_(config), device_(device), comm_(comm) {}

  absl::Status Load(const LoadProgress& progress);
  absl::Status AllocateBuffers();
  PlanLimits Limits(int32_t num_pages) const;
  // Plans the batch's attention and has the written plan on the device.
  absl::Status PlanAttention(ForwardBatch& batch);
  // Makes every rank's sampled ids rank 0's, and remembers them.
  absl::Status ShareSamples(const StepPlan& plan, StepResult& result);

  const RunnerConfig config_;
  Device& device_;
  Communicator& comm_;
  ModelConfig model_config_;
  Stream stream_;
  LoadedModel loaded_;

  Buffer workspace_memory_;
  Workspace workspace_;
  Buffer hidden_memory_;
  TensorView hidden_;  // [max_num_batched_tokens, hidden_size]
  Buffer samples_memory_;
  TensorView samples_;  // [max_num_seqs] i32
  std::optional<StepBatch> batch_;
  std::optional<StepOutputs> outputs_;
  PagedAttentionTarget attention_target_;
  PagedAttentionPlan attention_plan_;
  Buffer attention_plan_memory_;  // the written plan, and its staging; empty on the CPU
  std::vector<char> attention_plan_staging_;

  std::optional<KvCache> cache_;  // after AllocateCache, like slots_
  std::optional<SlotTable> slots_;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_MODEL_RUNNER_H_
