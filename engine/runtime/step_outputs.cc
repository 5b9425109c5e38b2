#include "engine/runtime/step_outputs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/core/status.h"
#include "kernels/sample/sample.h"

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

SampleRow SampleRowOf(const Slot& slot, const SequencePlan& plan) {
  const SamplingParams& p = slot.sampling;
  SampleRow row = {.temperature = p.temperature,
                   .top_k = p.top_k,
                   .top_p = p.top_p,
                   .min_p = p.min_p,
                   .repetition_penalty = p.repetition_penalty,
                   .frequency_penalty = p.frequency_penalty,
                   .presence_penalty = p.presence_penalty,
                   .num_top_logprobs = p.num_logprobs,
                   .seed = p.seed,
                   .position = int64_t{plan.position} + plan.num_tokens()};
  if (p.has_penalties()) {
    row.penalty_ids = slot.counts.ids().data();
    row.penalty_counts = slot.counts.output_counts().data();
    row.num_penalties = static_cast<int32_t>(slot.counts.ids().size());
  }
  row.bias_ids = slot.bias_ids.data();
  row.bias_values = slot.bias_values.data();
  row.num_biases = static_cast<int32_t>(slot.bias_ids.size());
  if (slot.output_tokens < p.min_tokens) {
    row.banned_ids = slot.stop_ids.data();
    row.num_banned = static_cast<int32_t>(slot.stop_ids.size());
  }
  return row;
}

// `count` alternatives, or as many as there are before an id of -1.
std::vector<TokenLogprob> TopOf(const int32_t* ids, const float* logprobs, int32_t count) {
  std::vector<TokenLogprob> top;
  for (int32_t i = 0; i < count && ids[i] >= 0; ++i) top.push_back({ids[i], logprobs[i]});
  return top;
}

// Calls body(begin, end) for each longest run of rows with `wanted`.
absl::Status ForRuns(absl::Span<const LogitsRow> rows,
                     const std::function<bool(const LogitsRow&)>& wanted,
                     const std::function<absl::Status(size_t begin, size_t end)>& body) {
  for (size_t begin = 0; begin < rows.size();) {
    size_t end = begin;
    while (end < rows.size() && wanted(rows[end])) ++end;
    if (end > begin) RETURN_IF_ERROR(body(begin, end));
    begin = end + 1;
  }
  return absl::OkStatus();
}

// A device tensor as the host sees it: itself on the CPU, else a copy that is complete after the
// stream was synchronised.
template <typename T>
class HostCopy final {
 public:
  absl::Status Start(const OpContext& op, const TensorView& tensor) {
    if (op.device.type() == DeviceType::kCpu) {
      data_ = tensor.as<T>();
      return absl::OkStatus();
    }
    copy_.resize(static_cast<size_t>(tensor.size()));
    data_ = copy_.data();
    return op.device.Copy(copy_.data(), tensor.data, tensor.size() * DTypeBytes(tensor.dtype),
                          CopyKind::kDeviceToHost, op.stream);
  }
  const T* at(size_t index) const { return data_ + index; }
  T operator[](size_t index) const { return data_[index]; }

 private:
  std::vector<T> copy_;
  const T* data_ = nullptr;
};

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
  ASSIGN_OR_RETURN(outputs.rows_memory_,
                   device.Allocate(outputs.max_rows_ * model.hidden_size() * DTypeBytes(dtype)));
  outputs.rows_ = TensorView::Of(outputs.rows_memory_.data(), dtype,
                                 {outputs.max_rows_, model.hidden_size()}, device.type());
  ASSIGN_OR_RETURN(outputs.logits_memory_, device.Allocate(outputs.max_rows_ * row_bytes));
  outputs.logits_ = TensorView::Of(outputs.logits_memory_.data(), DType::kF32,
                                   {outputs.max_rows_, model.vocab_size()}, device.type());
  RETURN_IF_ERROR(outputs.AllocateSampled(device));
  return outputs;
}

absl::Status StepOutputs::AllocateSampled(Device& device) {
  constexpr int64_t kTop = kSampleTopLogprobs;
  ASSIGN_OR_RETURN(sampled_memory_, device.Allocate(max_rows_ * (3 + 2 * kTop) * 4));
  char* next = static_cast<char*>(sampled_memory_.data());
  const auto place = [&](DType dtype, int64_t columns) {
    const TensorView view = columns == 1
                                ? TensorView::Of(next, dtype, {max_rows_}, device.type())
                                : TensorView::Of(next, dtype, {max_rows_, columns}, device.type());
    next += max_rows_ * columns * 4;
    return view;
  };
  sampled_ = {.ids = place(DType::kI32, 1),
              .flags = place(DType::kI32, 1),
              .logprob = place(DType::kF32, 1),
              .top_ids = place(DType::kI32, kTop),
              .top_logprobs = place(DType::kF32, kTop)};
  return absl::OkStatus();
}

int64_t StepOutputs::WorkspaceBytes(Device& device) const {
  return SampleWorkspaceBytes(device, max_rows_, model_->vocab_size());
}

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
    if (ctx.comm.rank() != 0) continue;
    RETURN_IF_ERROR(SampleRows(ctx.op, slots, plan, chunk, result));
    RETURN_IF_ERROR(ScoreRows(ctx.op, slots, chunk, result));
    RETURN_IF_ERROR(CopyRaw(ctx.op, chunk, result));
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

absl::Status StepOutputs::SampleRows(const OpContext& op, const SlotTable& slots,
                                     const StepPlan& plan, absl::Span<const LogitsRow> rows,
                                     StepResult& result) {
  const auto sample_run = [&](size_t begin, size_t end) -> absl::Status {
    std::vector<SampleRow> sample_rows;
    for (const LogitsRow& row : rows.subspan(begin, end - begin)) {
      const SequencePlan& s = plan.sequences[static_cast<size_t>(row.sequence)];
      sample_rows.push_back(SampleRowOf(slots.slot(s.slot), s));
      RETURN_IF_ERROR(CheckSampleRow(sample_rows.back(), logits_.dim(1)));
    }
    const int64_t count = static_cast<int64_t>(end - begin);
    const Sampled out = {.ids = sampled_.ids.Rows(0, count),
                         .flags = sampled_.flags.Rows(0, count),
                         .logprob = sampled_.logprob.Rows(0, count),
                         .top_ids = sampled_.top_ids.Rows(0, count),
                         .top_logprobs = sampled_.top_logprobs.Rows(0, count)};
    RETURN_IF_ERROR(
        Sample(op, {.logits = logits_.Rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)),
                    .rows = sample_rows.data(),
                    .ids = out.ids,
                    .flags = out.flags,
                    .logprob = out.logprob,
                    .top_ids = out.top_ids,
                    .top_logprobs = out.top_logprobs}));
    HostCopy<int32_t> ids, flags, top_ids;
    HostCopy<float> logprob, top_logprobs;
    RETURN_IF_ERROR(ids.Start(op, out.ids));
    RETURN_IF_ERROR(flags.Start(op, out.flags));
    RETURN_IF_ERROR(logprob.Start(op, out.logprob));
    RETURN_IF_ERROR(top_ids.Start(op, out.top_ids));
    RETURN_IF_ERROR(top_logprobs.Start(op, out.top_logprobs));
    RETURN_IF_ERROR(op.device.Synchronize(op.stream));
    for (size_t i = 0; i < end - begin; ++i) {
      SequenceResult& s = result.sequences[static_cast<size_t>(rows[begin + i].sequence)];
      const bool ok = flags[i] == static_cast<int32_t>(SampleFlag::kOk);
      s.token = ok ? ids[i] : -1;
      s.numeric_fault |= !ok;
      const int32_t asked = sample_rows[i].num_top_logprobs;
      if (!ok || asked < 0) continue;
      const size_t top = i * kSampleTopLogprobs;
      s.logprobs =
          ScoredToken{{s.token, logprob[i]}, TopOf(top_ids.at(top), top_logprobs.at(top), asked)};
    }
    return absl::OkStatus();
  };
  return ForRuns(
      rows, [](const LogitsRow& row) { return row.sample; }, sample_run);
}

absl::Status StepOutputs::ScoreRows(const OpContext& op, const SlotTable& slots,
                                    absl::Span<const LogitsRow> rows, StepResult& result) {
  const auto top_of = [&](const LogitsRow& row) {
    const int32_t slot = result.sequences[static_cast<size_t>(row.sequence)].slot;
    return std::max(0, slots.slot(slot).sampling.num_prompt_logprobs);
  };
  const auto score_run = [&](size_t begin, size_t end) -> absl::Status {
    const int64_t count = static_cast<int64_t>(end - begin);
    std::vector<int32_t> targets;
    int32_t most = 0;
    for (const LogitsRow& row : rows.subspan(begin, end - begin)) {
      targets.push_back(row.target);
      most = std::max(most, top_of(row));
    }
    const TensorView ids = sampled_.ids.Rows(0, count);
    RETURN_IF_ERROR(
        op.device.Copy(ids.data, targets.data(), count * 4, CopyKind::kHostToDevice, op.stream));
    const TensorView logprob = sampled_.logprob.Rows(0, count);
    const TensorView top_ids = sampled_.top_ids.Rows(0, count).Cols(0, most);
    const TensorView top_logprobs = sampled_.top_logprobs.Rows(0, count).Cols(0, most);
    RETURN_IF_ERROR(TokenLogprobs(
        op, {.logits = logits_.Rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)),
             .targets = ids,
             .logprob = logprob,
             .rank = sampled_.flags.Rows(0, count),
             .top_ids = top_ids,
             .top_logprobs = top_logprobs}));
    HostCopy<float> scores, alternatives;
    HostCopy<int32_t> alternative_ids;
    RETURN_IF_ERROR(scores.Start(op, logprob));
    RETURN_IF_ERROR(alternative_ids.Start(op, sampled_.top_ids.Rows(0, count)));
    RETURN_IF_ERROR(alternatives.Start(op, sampled_.top_logprobs.Rows(0, count)));
    RETURN_IF_ERROR(op.device.Synchronize(op.stream));
    for (size_t i = 0; i < end - begin; ++i) {
      const LogitsRow& row = rows[begin + i];
      SequenceResult& s = result.sequences[static_cast<size_t>(row.sequence)];
      const size_t top = i * kSampleTopLogprobs;
      s.numeric_fault |= !std::isfinite(scores[i]);
      s.prompt_logprobs.push_back(
          {{row.target, scores[i]},
           TopOf(alternative_ids.at(top), alternatives.at(top), top_of(row))});
    }
    return absl::OkStatus();
  };
  return ForRuns(
      rows, [](const LogitsRow& row) { return row.target >= 0; }, score_run);
}

absl::Status StepOutputs::CopyRaw(const OpContext& op, absl::Span<const LogitsRow> rows,
                                  StepResult& result) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].raw) continue;
    std::vector<float> row(static_cast<size_t>(logits_.dim(1)));
    const int64_t index = static_cast<int64_t>(i);
    RETURN_IF_ERROR(op.device.Copy(row.data(), logits_.Rows(index, index + 1).data,
                                   logits_.dim(1) * DTypeBytes(DType::kF32),
                                   CopyKind::kDeviceToHost, op.stream));
    RETURN_IF_ERROR(op.device.Synchronize(op.stream));
    result.sequences[static_cast<size_t>(rows[i].sequence)].logits.push_back(std::move(row));
  }
  return absl::OkStatus();
}

}  // namespace millrace
