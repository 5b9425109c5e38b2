// One rank: turns step plans into tokens.
#ifndef ENGINE_RUNTIME_MODEL_RUNNER_H_
#define ENGINE_RUNTIME_MODEL_RUNNER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/cache/kv_cache.h"
#include "engine/config/model_config.h"
#include "engine/models/load_model.h"
#include "engine/models/model.h"
#include "engine/parallel/communicator.h"
#include "engine/runtime/decode_graphs.h"
#include "engine/runtime/runner_config.h"
#include "engine/runtime/sample_rows.h"
#include "engine/runtime/slot_table.h"
#include "engine/runtime/step_batch.h"
#include "engine/runtime/step_outputs.h"
#include "engine/runtime/step_staging.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"
#include "kernels/core/op_context.h"

namespace millrace {

// Worker thread. Borrows device and communicators, which must outlive it. All ranks, of all groups,
// get the same config, the same number of pages and the same plans in the same order; a rank runs
// the sequences of its own group and answers for them alone.
class ModelRunner final {
 public:
  // Loads this rank's part of the model and allocates everything but the cache, for the largest
  // step that `config` allows. `progress` may be empty. Errors say what to change: InvalidArgument
  // (config, checkpoint, split), NotFound (files), ResourceExhausted (memory).
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(const RunnerConfig& config,
                                                             Device& device,
                                                             const RankGroups& groups,
                                                             const LoadProgress& progress);
  ~ModelRunner();

  const ModelConfig& model_config() const { return model_config_; }

  // What the cache can be sized by. available_bytes is asked of the device at each call.
  absl::StatusOr<RankMemory> memory() const;

  // Once; captures the decode graphs too, where the device has graphs. FailedPrecondition the
  // second time. `progress` may be empty.
  absl::Status AllocateCache(int32_t num_pages, const DecodeGraphs::Progress& progress = {});

  // Starts the step. At most kStepsInFlight may be launched and not collected. On the CPU the step
  // is done when the call returns; on CUDA it is enqueued: all it needs from the step ahead of it
  // stays on the device, unless a sequence has penalties, whose counts the host must know first.
  // InvalidArgument, nothing done, for a plan with any number out of range (see SlotTable);
  // FailedPrecondition before AllocateCache. Any other error leaves the rank unusable.
  absl::Status Launch(const StepPlan& plan);

  // Of the oldest launched step. REQUIRES: in_flight() > 0 (both).
  absl::StatusOr<bool> Ready() const;
  // Waits for it. On rank 0 the result is complete; the others know the sampled ids only. NaN or
  // Inf in a row of logits fails only its own sequence (numeric_fault).
  absl::StatusOr<StepResult> Collect();
  int in_flight() const { return static_cast<int>(launched_.size()); }

 private:
  // A launched step.
  struct Launched {
    PendingOutputs pending;
    std::vector<uint32_t> sequences;  // Slot::sequence of each of the result's
    std::vector<bool> samples;        // whether it sampled
    Event done;
    bool finished = false;  // pending.result is complete and recorded
  };

  ModelRunner(const RunnerConfig& config, Device& device, const RankGroups& groups)
      : config_(config), device_(device), groups_(groups), comm_(groups.tensor) {}

  absl::Status Load(const LoadProgress& progress);
  // ResourceExhausted with the plan when the device has no room for `planned`, a step's buffers
  // and one sequence of max_model_len.
  absl::Status CheckRoom(const LoadedModel& planned) const;
  LargestStep Largest(int64_t logit_rows) const;
  absl::Status AllocateBuffers();
  PlanLimits Limits(int32_t num_pages) const;
  KvCache::Size CacheSize(int32_t num_pages) const;
  std::vector<int32_t> GraphSizes() const;
  // What the graphs will take, by capturing the largest on a cache of one page.
  absl::Status MeasureGraphs();
  absl::Status CaptureGraphs(absl::Span<const int32_t> sizes, const KvCache& cache,
                             const DecodeGraphs::Progress& progress, DecodeGraphs& graphs);

  // What of a plan is this group's.
  StepPlan OwnPart(const StepPlan& plan) const;
  absl::Status CheckGroups(const StepPlan& plan) const;
  // Whether a step without sequences has to be run for the other groups' sake.
  bool JoinsIdleSteps() const { return config_.expert_parallel; }

  OpContext Op() { return {.device = device_, .stream = stream_, .workspace = workspace_}; }
  int64_t LogitsBytes() const;
  BatchShape DecodeShape(int32_t size) const;

  // A step as it lies in the staging.
  struct Staged {
    ForwardBatch batch;
    const SampleRow* rows = nullptr;  // on the device
  };
  // Stages the plan padded to `shape`, with `padded_rows` rows to sample, and copies it.
  absl::StatusOr<Staged> Stage(const StepPlan& plan, const BatchShape& shape, int64_t padded_rows);
  // The like of a decode step of `size` sequences that write nothing.
  absl::StatusOr<Staged> StageWarmUp(int32_t size);
  // The last two blocks, and the copy.
  absl::Status StagePlanAndFlush(ForwardBatch& batch);

  absl::StatusOr<PendingOutputs> LaunchEager(const StepPlan& plan);
  absl::StatusOr<PendingOutputs> LaunchGraph(const StepPlan& plan, int32_t size);
  // The whole of a decode step on the device, from ids to sampled ids.
  absl::Status EnqueueDecode(const KvCache& cache, const Staged& step);
  // Whether a plan must know what an earlier one sampled.
  bool NeedsRecords(const StepPlan& plan) const;
  absl::Status FinishAll();
  // Makes every rank's sampled ids rank 0's (CPU).
  absl::Status ShareSamples(Launched& step);
  void Record(Launched& step);

  const RunnerConfig config_;
  Device& device_;
  const RankGroups groups_;
  Communicator& comm_;  // groups_.tensor
  ModelConfig model_config_;
  Stream stream_;
  LoadedModel loaded_;

  Buffer workspace_memory_;
  Workspace workspace_;
  Buffer hidden_memory_;
  TensorView hidden_;  // [max_num_batched_tokens, hidden_size]
  Buffer samples_memory_;
  TensorView samples_;  // [max_num_seqs] i32
  std::optional<StepStaging> staging_;
  std::optional<SampleRows> sample_rows_;
  std::optional<StepOutputs> outputs_;
  PagedAttentionTarget attention_target_;
  PagedAttentionPlan attention_plan_;
  int64_t graph_bytes_ = 0;  // of device memory, measured

  std::optional<KvCache> cache_;  // after AllocateCache, like the next two
  std::optional<SlotTable> slots_;
  DecodeGraphs graphs_;
  std::deque<Launched> launched_;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_MODEL_RUNNER_H_
