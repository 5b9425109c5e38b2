#include "engine/runtime/step_outputs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

void AddSequenceRows(const SequencePlan& s, int32_t sequence, int64_t first,
                     std::vector<LogitsRow>& rows) {
  auto raw = s.logits_rows.begin();
  const int32_t tokens = s.num_tokens();
  for (int32_t i = 0; i < tokens; ++i) {
    LogitsRow row{.token = first + i, .sequence = sequence};
    row.sample = s.sample && i == tokens - 1;
    if (s.prompt_logprobs) row.target = s.score_targets[static_cast<size_t>(i)];
    row.raw = raw != s.logits_rows.end() && *raw == i;
    if (row.raw) ++raw;
    if (row.sample || row.raw || row.target >= 0) rows.push_back(row);
  }
}

}  // namespace

std::vector<LogitsRow> LogitsRowsOf(const StepPlan& plan) {
  std::vector<LogitsRow> rows;
  int64_t first = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    AddSequenceRows(plan.sequences[i], static_cast<int32_t>(i), first, rows);
    first += plan.sequences[i].num_tokens();
  }
  return rows;
}

absl::StatusOr<StepOutputs> StepOutputs::Create(const Model& model, const PlanLimits& limits,
                                                Device& device, int64_t logits_bytes) {
  StepOutputs outputs;
  outputs.model_ = &model;
  const int64_t row_bytes = model.vocab_size() * DTypeBytes(DType::kF32);
  outputs.max_rows_ =
      std::clamp<int64_t>(logits_bytes / row_bytes, 1, limits.max_num_batched_tokens);
  const DType dtype = ActivationDType(device.type());
  ASSIGN_OR_RETURN(outputs.rows_memory_, device.Allocate(outputs.max_rows_ * model.hidden_size() *
                                                         DTypeBytes(dtype)));
  outputs.rows_ = TensorView::Of(outputs.rows_memory_.data(), dtype,
                                 {outputs.max_rows_, model.hidden_size()}, device.type());
  ASSIGN_OR_RETURN(outputs.logits_memory_, device.Allocate(outputs.max_rows_ * row_bytes));
  outputs.logits_ = TensorView::Of(outputs.logits_memory_.data(), DType::kF32,
                                   {outputs.max_rows_, model.vocab_size()}, device.type());
  return outputs;
}

int64_t StepOutputs::WorkspaceBytes(Device& device) const { return 0; }

absl::StatusOr<StepResult> StepOutputs::Compute(ForwardContext& ctx, const StepPlan& plan,
                                                const SlotTable& slots, const TensorView& hidden) {
  StepResult result;
  result.step = plan.step;
  for (const SequencePlan& s : plan.sequences) {
    result.sequences.emplace_back();
    result.sequences.back().slot = s.slot;
  }
  const std::vector<LogitsRow> rows = LogitsRowsOf(plan);
  const absl::Span<const LogitsRow> all = rows;
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(max_rows_)) {
    const absl::Span<const LogitsRow> chunk = all.subspan(begin, static_cast<size_t>(max_rows_));
    ASSIGN_OR_RETURN(const TensorView states, Gather(ctx, chunk, hidden));
    const TensorView logits = logits_.Rows(0, static_cast<int64_t>(chunk.size()));
    RETURN_IF_ERROR(model_->Logits(ctx, states, logits));
    if (ctx.comm.rank() == 0) RETURN_IF_ERROR(Finish(ctx, slots, plan, chunk, result));
  }
  return result;
}

absl::StatusOr<TensorView> StepOutputs::Gather(ForwardContext& ctx,
                                               absl::Span<const LogitsRow> rows,
                                               const TensorView& hidden) {
  const int64_t count = static_cast<int64_t>(rows.size());
  const int64_t first = rows.front().token;
  if (rows.back().token - first == count - 1) return hidden.Rows(first, first + count);
  const int64_t bytes = hidden.dim(1) * DTypeBytes(hidden.dtype);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t token = rows[static_cast<size_t>(i)].token;
    RETURN_IF_ERROR(ctx.op.device.Copy(rows_.Rows(i, i + 1).data,
                                       hidden.Rows(token, token + 1).data, bytes,
                                       CopyKind::kDeviceToDevice, ctx.op.stream));
  }
  return rows_.Rows(0, count);
}

absl::Status StepOutputs::Finish(ForwardContext& ctx, const SlotTable& slots, const StepPlan& plan,
                                 absl::Span<const LogitsRow> rows, StepResult& result) {
  // TEMPORARY greedy
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* l = logits_.Rows(i, i + 1).as<float>();
    int64_t V = logits_.dim(1);
    SequenceResult& out = result.sequences[rows[i].sequence];
    if (rows[i].sample) {
      std::vector<int32_t> idx(V); for (int64_t v=0; v<V; ++v) idx[v]=v;
      std::partial_sort(idx.begin(), idx.begin()+2, idx.end(), [&](int a,int b){return l[a]>l[b];});
      out.token = idx[0];
      double s=0; for (int64_t v=0;v<V;++v) s+=std::exp(double(l[v])-l[idx[0]]);
      ScoredToken t; float lse=l[idx[0]]+std::log(s); t.token={idx[0], l[idx[0]]-lse}; t.top={{idx[0],l[idx[0]]-lse},{idx[1],l[idx[1]]-lse}};
      if (slots.slot(out.slot).sampling.num_logprobs>=0) out.logprobs=t;
    }
  }
  return CopyRaw(ctx, rows, result);
}

absl::Status StepOutputs::CopyRaw(ForwardContext& ctx, absl::Span<const LogitsRow> rows,
                                  StepResult& result) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].raw) continue;
    std::vector<float> row(static_cast<size_t>(logits_.dim(1)));
    const int64_t index = static_cast<int64_t>(i);
    RETURN_IF_ERROR(ctx.op.device.Copy(row.data(), logits_.Rows(index, index + 1).data,
                                       logits_.dim(1) * DTypeBytes(DType::kF32),
                                       CopyKind::kDeviceToHost, ctx.op.stream));
    RETURN_IF_ERROR(ctx.op.device.Synchronize(ctx.op.stream));
    result.sequences[static_cast<size_t>(rows[i].sequence)].logits.push_back(std::move(row));
  }
  return absl::OkStatus();
}

}  // namespace millrace
