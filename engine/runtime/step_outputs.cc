#include "engine/runtime/step_outputs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

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

StepResult EmptyResult(const StepPlan& plan) {
  StepResult result;
  result.step = plan.step;
  for (const SequencePlan& s : plan.sequences) {
    result.sequences.emplace_back();
    result.sequences.back().slot = s.slot;
  }
  return result;
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
  ASSIGN_OR_RETURN(outputs.last_tokens_memory_, device.Allocate(int64_t{limits.max_num_seqs} * 4));
  outputs.last_tokens_ = TensorView::Of(outputs.last_tokens_memory_.data(), DType::kI32,
                                        {limits.max_num_seqs}, device.type());
  RETURN_IF_ERROR(outputs.AllocateSampled(device));
  return outputs;
}

absl::Status StepOutputs::AllocateSampled(Device& device) {
  constexpr int64_t kTop = kSampleTopLogprobs;
  ASSIGN_OR_RETURN(sampled_memory_, device.Allocate(max_rows_ * (3 + 2 * kTop) * 4));
  if (device.type() != DeviceType::kCpu) {
    for (Buffer& host : host_sampled_) {
      ASSIGN_OR_RETURN(host, device.AllocateHost(sampled_memory_.bytes()));
    }
  }
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

int64_t StepOutputs::bytes() const {
  return rows_memory_.bytes() + logits_memory_.bytes() + sampled_memory_.bytes() +
         last_tokens_memory_.bytes();
}

StepOutputs::Sampled StepOutputs::SampledRows(int64_t begin, int64_t end) const {
  return {.ids = sampled_.ids.Rows(begin, end),
          .flags = sampled_.flags.Rows(begin, end),
          .logprob = sampled_.logprob.Rows(begin, end),
          .top_ids = sampled_.top_ids.Rows(begin, end),
          .top_logprobs = sampled_.top_logprobs.Rows(begin, end)};
}

absl::StatusOr<PendingOutputs> StepOutputs::Enqueue(ForwardContext& ctx, const StepPlan& plan,
                                                    const SlotTable& slots,
                                                    const TensorView& hidden,
                                                    const SampleRow* sample_rows) {
  PendingOutputs pending = {.result = EmptyResult(plan), .sampled = {}, .turn = 0};
  const std::vector<LogitsRow> rows = LogitsRowsOf(plan);
  const bool on_cpu = ctx.op.device.type() == DeviceType::kCpu;
  const bool samples = !on_cpu || ctx.comm.rank() == 0;
  const bool only_samples = std::all_of(rows.begin(), rows.end(), [](const LogitsRow& row) {
    return row.sample && !row.raw && row.target < 0;
  });
  const bool deferred = only_samples && static_cast<int64_t>(rows.size()) <= max_rows_;
  Chunk chunk = {.rows = {}, .sample_rows = sample_rows};
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(max_rows_)) {
    chunk.rows = absl::MakeConstSpan(rows).subspan(begin, static_cast<size_t>(max_rows_));
    ASSIGN_OR_RETURN(const TensorView states, Gather(ctx, chunk.rows, hidden));
    const TensorView logits = logits_.Rows(0, static_cast<int64_t>(chunk.rows.size()));
    RETURN_IF_ERROR(model_->Logits(ctx, states, logits));
    if (!samples) continue;
    RETURN_IF_ERROR(SampleChunk(ctx.op, chunk, slots, pending));
    chunk.sample_rows += pending.sampled.size();
    if (deferred) break;
    RETURN_IF_ERROR(ctx.op.device.Synchronize(ctx.op.stream));
    TakeSampled(pending);
    if (ctx.comm.rank() != 0) continue;
    RETURN_IF_ERROR(ScoreRows(ctx.op, slots, chunk.rows, pending.result));
    RETURN_IF_ERROR(CopyRaw(ctx.op, chunk.rows, pending.result));
  }
  return pending;
}

absl::Status StepOutputs::EnqueueDecode(ForwardContext& ctx, const TensorView& hidden,
                                        const SampleRow* rows) {
  const TensorView logits = logits_.Rows(0, hidden.dim(0));
  RETURN_IF_ERROR(model_->Logits(ctx, hidden, logits));
  return Sample(ctx.op, logits, rows, 0);
}

absl::StatusOr<PendingOutputs> StepOutputs::EnqueueDecodeCopy(const OpContext& op,
                                                              const StepPlan& plan,
                                                              const SlotTable& slots) {
  PendingOutputs pending = {.result = EmptyResult(plan), .sampled = {}, .turn = 0};
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const Slot& slot = slots.slot(plan.sequences[i].slot);
    pending.sampled.push_back({.sequence = i, .top_logprobs = slot.sampling.num_logprobs});
  }
  RETURN_IF_ERROR(CopySampled(op, pending));
  return pending;
}

StepResult StepOutputs::Finish(PendingOutputs pending) const {
  TakeSampled(pending);
  return std::move(pending.result);
}

absl::Status StepOutputs::Sample(const OpContext& op, const TensorView& logits,
                                 const SampleRow* rows, int64_t first_output) {
  const Sampled out = SampledRows(first_output, first_output + logits.dim(0));
  return millrace::Sample(op, {.logits = logits,
                               .rows = rows,
                               .ids = out.ids,
                               .flags = out.flags,
                               .logprob = out.logprob,
                               .top_ids = out.top_ids,
                               .top_logprobs = out.top_logprobs,
                               .last_tokens = last_tokens_});
}

// The three numbers of every row in one copy, the lists only where some row asked for one.
absl::Status StepOutputs::CopySampled(const OpContext& op, PendingOutputs& pending) {
  turn_ = (turn_ + 1) % kStepsInFlight;
  pending.turn = turn_;
  const Buffer& host = host_sampled_[turn_];
  if (host.data() == nullptr || pending.sampled.empty()) return absl::OkStatus();
  const bool lists =
      std::any_of(pending.sampled.begin(), pending.sampled.end(),
                  [](const PendingOutputs::Row& row) { return row.top_logprobs > 0; });
  const int64_t numbers = 3 * max_rows_ * 4;
  return op.device.Copy(host.data(), sampled_memory_.data(),
                        lists ? sampled_memory_.bytes() : numbers, CopyKind::kDeviceToHost,
                        op.stream);
}

absl::Status StepOutputs::SampleChunk(const OpContext& op, const Chunk& chunk,
                                      const SlotTable& slots, PendingOutputs& pending) {
  const auto sample_run = [&](size_t begin, size_t end) -> absl::Status {
    const int64_t first = static_cast<int64_t>(pending.sampled.size());
    RETURN_IF_ERROR(Sample(op, logits_.Rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)),
                           chunk.sample_rows + first, first));
    for (const LogitsRow& row : chunk.rows.subspan(begin, end - begin)) {
      const size_t sequence = static_cast<size_t>(row.sequence);
      const Slot& slot = slots.slot(pending.result.sequences[sequence].slot);
      pending.sampled.push_back({.sequence = sequence, .top_logprobs = slot.sampling.num_logprobs});
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForRuns(
      chunk.rows, [](const LogitsRow& row) { return row.sample; }, sample_run));
  return CopySampled(op, pending);
}

void StepOutputs::TakeSampled(PendingOutputs& pending) const {
  const Buffer& host = host_sampled_[pending.turn];
  const char* base =
      static_cast<const char*>(host.data() == nullptr ? sampled_memory_.data() : host.data());
  const size_t rows = static_cast<size_t>(max_rows_);
  const int32_t* const ids = reinterpret_cast<const int32_t*>(base);
  const int32_t* const flags = ids + rows;
  const float* const logprob = reinterpret_cast<const float*>(flags + rows);
  const int32_t* const top_ids = reinterpret_cast<const int32_t*>(logprob + rows);
  const float* const top_logprobs =
      reinterpret_cast<const float*>(top_ids + rows * kSampleTopLogprobs);
  for (size_t i = 0; i < pending.sampled.size(); ++i) {
    const PendingOutputs::Row& row = pending.sampled[i];
    SequenceResult& s = pending.result.sequences[row.sequence];
    const bool ok = flags[i] == static_cast<int32_t>(SampleFlag::kOk);
    s.token = ok ? ids[i] : -1;
    s.numeric_fault |= !ok;
    if (!ok || row.top_logprobs < 0) continue;
    const size_t top = i * kSampleTopLogprobs;
    s.logprobs = ScoredToken{{s.token, logprob[i]},
                             TopOf(top_ids + top, top_logprobs + top, row.top_logprobs)};
  }
  pending.sampled.clear();
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
