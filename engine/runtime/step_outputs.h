// The last part of a step: from hidden states to sampled tokens, scores and raw logits.
#ifndef ENGINE_RUNTIME_STEP_OUTPUTS_H_
#define ENGINE_RUNTIME_STEP_OUTPUTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/models/model.h"
#include "engine/runtime/slot_table.h"
#include "engine/runtime/step_staging.h"
#include "engine/scheduler/step_plan.h"
#include "kernels/core/device.h"
#include "kernels/sample/sample.h"

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

// What a step leaves to be read once its work is done.
struct PendingOutputs {
  StepResult result;  // complete but for the rows below
  struct Row {
    size_t sequence = 0;        // of the result
    int32_t top_logprobs = -1;  // as SampleRow::num_top_logprobs
  };
  std::vector<Row> sampled;  // in the order of the device's outputs
  int turn = 0;              // which host copy holds them
};

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
  int64_t bytes() const;
  // What sampling needs, apart from the model's own.
  int64_t WorkspaceBytes(Device& device) const;
  // [max_num_seqs] i32: the token sampled last in each slot, on the device.
  const TensorView& last_tokens() const { return last_tokens_; }

  // Enqueues the plan's outputs, given the hidden state of each of its tokens and, on the device,
  // the SampleRow of each sequence that samples, in order. All ranks take part in the logits. On
  // CUDA every rank samples: the same logits give the same tokens on equal GPUs, and none has to
  // wait for another's. On the CPU, where ranks may have different instruction sets, only rank 0
  // does. Returns without waiting when sampling one chunk is all there is to do.
  // REQUIRES: `plan` was applied to `slots`.
  absl::StatusOr<PendingOutputs> Enqueue(ForwardContext& ctx, const StepPlan& plan,
                                         const SlotTable& slots, const TensorView& hidden,
                                         const SampleRow* rows);

  // The two halves of a step in which each token is sampled from: what a graph can hold, and the
  // copy to the host. REQUIRES: at most max_rows() tokens.
  absl::Status EnqueueDecode(ForwardContext& ctx, const TensorView& hidden, const SampleRow* rows);
  absl::StatusOr<PendingOutputs> EnqueueDecodeCopy(const OpContext& op, const StepPlan& plan,
                                                   const SlotTable& slots);

  // In the plan's order. REQUIRES: the enqueued work is done.
  StepResult Finish(PendingOutputs pending) const;

 private:
  // What the sampling ops write. Row r's entries are at [r], and at [r * kSampleTopLogprobs] in the
  // two lists. One allocation, the lists last.
  struct Sampled {
    TensorView ids, flags, logprob, top_ids, top_logprobs;
  };
  // A chunk of rows whose logits are computed.
  struct Chunk {
    absl::Span<const LogitsRow> rows;
    const SampleRow* sample_rows = nullptr;
  };

  StepOutputs() = default;
  absl::Status AllocateSampled(Device& device);
  Sampled SampledRows(int64_t begin, int64_t end) const;
  // The hidden states of `rows`, without a copy where they lie side by side.
  absl::StatusOr<TensorView> Gather(ForwardContext& ctx, absl::Span<const LogitsRow> rows,
                                    const TensorView& hidden);
  absl::Status Sample(const OpContext& op, const TensorView& logits, const SampleRow* rows,
                      int64_t first_output);
  absl::Status CopySampled(const OpContext& op, PendingOutputs& pending);
  // The three uses of a chunk's logits.
  absl::Status SampleChunk(const OpContext& op, const Chunk& chunk, const SlotTable& slots,
                           PendingOutputs& pending);
  absl::Status ScoreRows(const OpContext& op, const SlotTable& slots,
                         absl::Span<const LogitsRow> rows, StepResult& result);
  absl::Status CopyRaw(const OpContext& op, absl::Span<const LogitsRow> rows, StepResult& result);
  void TakeSampled(PendingOutputs& pending) const;

  const Model* model_ = nullptr;
  int64_t max_rows_ = 0;
  Buffer rows_memory_;
  TensorView rows_;  // [max_rows, hidden_size]
  Buffer logits_memory_;
  TensorView logits_;  // [max_rows, vocab_size] f32
  Buffer last_tokens_memory_;
  TensorView last_tokens_;
  Buffer sampled_memory_;
  Sampled sampled_;
  Buffer host_sampled_[kStepsInFlight];  // empty on the CPU, which reads sampled_memory_
  int turn_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_RUNTIME_STEP_OUTPUTS_H_
