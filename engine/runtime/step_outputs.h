// The last part of a step: from hidden states to sampled tokens, scores and raw logits.
#ifndef ENGINE_RUNTIME_STEP_OUTPUTS_H_
#define ENGINE_RUNTIME_STEP_OUTPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/models/model.h"
#include "engine/runtime/slot_table.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"

namespace millrace {

// A token whose logits are needed, and what for.
struct LogitsRow {
  int64_t token = 0;     // of the step
  int32_t sequence = 0;  // index in the plan
  bool sample = false;
  bool raw = false;     // return the row itself
  int32_t target = -1;  // >= 0: score this id
};

// In ascending order of tokens, at most one row per token.
std::vector<LogitsRow> LogitsRowsOf(const StepPlan& plan);

// Computes logits a bounded number of rows at a time, so that scoring a long prompt needs no more
// memory than sampling. Worker thread. Model and device must outlive it.
class StepOutputs final {
 public:
  // Of logits at once; a row of a 128k vocabulary is half a MiB.
  static constexpr int64_t kDefaultLogitsBytes = int64_t{32} << 20;

  // `logits_bytes` holds at least one row however small it is.
  static absl::StatusOr<StepOutputs> Create(const Model& model, const PlanLimits& limits,
                                            Device& device,
                                            int64_t logits_bytes = kDefaultLogitsBytes);

  // Rows of one call to Model::Logits.
  int64_t max_rows() const { return max_rows_; }
  int64_t bytes() const {
    return rows_memory_.bytes() + logits_memory_.bytes() + sampled_memory_.bytes();
  }
  // What sampling needs, apart from the model's own.
  int64_t WorkspaceBytes(Device& device) const;

  // The plan's results, in its order, given the hidden state of each of its tokens. All ranks take
  // part in the logits; only rank 0 samples and scores. REQUIRES: `plan` was applied to `slots`.
  absl::StatusOr<StepResult> Compute(ForwardContext& ctx, const StepPlan& plan,
                                     const SlotTable& slots, const TensorView& hidden);

 private:
  // What the sampling ops write, on the device and as the host's copy. Row r's entries are at
  // [r], and at [r * kSampleTopLogprobs] in the two lists.
  struct Sampled {
    TensorView ids, flags, logprob, top_ids, top_logprobs;
  };

  StepOutputs() = default;
  absl::Status AllocateSampled(Device& device);
  // The hidden states of `rows`, without a copy where they lie side by side.
  absl::StatusOr<TensorView> Gather(ForwardContext& ctx, absl::Span<const LogitsRow> rows,
                                    const TensorView& hidden);
  // The three uses of rows [begin, end) of the logits.
  absl::Status SampleRows(const OpContext& op, const SlotTable& slots, const StepPlan& plan,
                          absl::Span<const LogitsRow> rows, StepResult& result);
  absl::Status ScoreRows(const OpContext& op, const SlotTable& slots,
                         absl::Span<const LogitsRow> rows, StepResult& result);
  absl::Status CopyRaw(const OpContext& op, absl::Span<const LogitsRow> rows, StepResult& result);

  const Model* model_ = nullptr;
  int64_t max_rows_ = 0;
  Buffer rows_memory_;
  TensorView rows_;  // [max_rows, hidden_size]
  Buffer logits_memory_;
  TensorView logits_;  // [max_rows, vocab_size] f32
  Buffer sampled_memory_;
  Sampled sampled_;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_OUTPUTS_H_
