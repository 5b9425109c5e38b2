#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cpu/isa_choice.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sample/sample_cpu_row.h"
#include "kernels/sample/sample_impl.h"

namespace millrace {
namespace {

const SamplePasses& PassesFor(CpuIsa isa) {
  return ForIsa(isa, kSampleScalar, kSampleAvx2, kSampleAvx512);
}

// Rows in flight: one a thread, or, with fewer rows than threads, one that all threads share.
int64_t Lanes(const ThreadPool& pool, int64_t rows) {
  return rows >= pool.threads() ? pool.threads() : 1;
}

// Calls body(row, view) for each row.
template <typename Body>
absl::Status ForEachRow(const OpContext& ctx, int64_t rows, int64_t vocabulary, const Body& body) {
  ThreadPool& pool = *ctx.device.thread_pool();
  const SamplePasses& passes = PassesFor(pool.isa());
  const int64_t lanes = Lanes(pool, rows);
  const int64_t lane_bytes = SampleScratchBytes(vocabulary);
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* const memory, workspace.Take(lanes * lane_bytes));
  if (lanes == 1) {
    SampleRowView view(passes, &pool, CutSampleScratch(memory, vocabulary), vocabulary);
    for (int64_t i = 0; i < rows; ++i) body(i, view);
    return absl::OkStatus();
  }
  std::atomic<int64_t> next{0};
  pool.ParallelFor(lanes, 1, [&](int64_t, int64_t, int thread) {
    char* const scratch = static_cast<char*>(memory) + thread * lane_bytes;
    SampleRowView view(passes, nullptr, CutSampleScratch(scratch, vocabulary), vocabulary);
    for (int64_t i = next.fetch_add(1); i < rows; i = next.fetch_add(1)) body(i, view);
  });
  return absl::OkStatus();
}

bool Changes(const SampleRow& r) {
  const bool penalties =
      r.repetition_penalty != 1 || r.frequency_penalty != 0 || r.presence_penalty != 0;
  return (penalties && r.num_penalties > 0) || r.num_biases > 0 || r.num_banned > 0;
}

template <typename T>
T* RowOf(const TensorView& t, int64_t i) {
  return t.as<T>() + i * t.stride(0);
}

// Writes the `count` likeliest of the row and clears the places up to `width`.
struct TopOut {
  int32_t* ids;
  float* logprobs;
  int64_t width;
};

void WriteTop(SampleRowView& view, int64_t count, double log_sum, TopOut out) {
  const absl::Span<const SampleCandidate> top = view.Top(count);
  for (int64_t j = 0; j < out.width; ++j) {
    const bool any = j < static_cast<int64_t>(top.size());
    out.ids[j] = any ? top[static_cast<size_t>(j)].id : -1;
    out.logprobs[j] = any ? static_cast<float>(top[static_cast<size_t>(j)].logit - log_sum) : 0.0f;
  }
}

struct Picked {
  SampleFlag flag = SampleFlag::kOk;
  int32_t id = -1;
};

Picked Pick(SampleRowView& view, const SampleRow& row) {
  if (Changes(row)) view.Change(row);
  if (view.maximum() == -std::numeric_limits<float>::infinity()) {
    return {.flag = SampleFlag::kNothingLeft};
  }
  if (!std::isfinite(view.maximum())) return {.flag = SampleFlag::kNotFinite};
  return {.id = row.temperature < kMinTemperature ? view.Greedy() : view.Draw(row)};
}

void WriteOff(const SampleArgs& args, int64_t i, SampleRowView& view, const TopOut& top) {
  WriteTop(view, 0, 0, top);
  *RowOf<int32_t>(args.ids, i) = -1;
  *RowOf<int32_t>(args.flags, i) = static_cast<int32_t>(SampleFlag::kOk);
  *RowOf<float>(args.logprob, i) = 0;
}

void SampleOne(const SampleArgs& args, int64_t i, SampleRowView& view) {
  const SampleRow& row = args.rows[i];
  const float* logits = RowOf<const float>(args.logits, i);
  const TopOut top = {RowOf<int32_t>(args.top_ids, i), RowOf<float>(args.top_logprobs, i),
                      kSampleTopLogprobs};
  if (row.off) return WriteOff(args, i, view, top);
  Picked picked{.flag = SampleFlag::kNotFinite};
  double log_sum = 0;
  const bool finite = view.Read(logits);
  const bool scored = finite && row.num_top_logprobs >= 0;
  if (scored) log_sum = view.LogSum();
  WriteTop(view, scored ? row.num_top_logprobs : 0, log_sum, top);
  if (finite) picked = Pick(view, row);
  *RowOf<int32_t>(args.ids, i) = picked.id;
  *RowOf<int32_t>(args.flags, i) = static_cast<int32_t>(picked.flag);
  *RowOf<float>(args.logprob, i) =
      scored && picked.id >= 0 ? static_cast<float>(logits[picked.id] - log_sum) : 0.0f;
  if (args.last_tokens && row.slot >= 0 && row.slot < args.last_tokens->dim(0)) {
    args.last_tokens->as<int32_t>()[row.slot] = std::max(picked.id, 0);
  }
}

void ScoreOne(const TokenLogprobsArgs& args, int64_t i, SampleRowView& view) {
  const float* logits = RowOf<const float>(args.logits, i);
  const int32_t id = *RowOf<int32_t>(args.targets, i);
  const bool finite = view.Read(logits);
  const bool known = finite && id >= 0 && id < args.logits.dim(1);
  const float target = known ? logits[id] : std::numeric_limits<float>::quiet_NaN();
  const double log_sum = finite ? view.LogSum() : 0;
  const int64_t width = args.top_ids.dim(1);
  WriteTop(view, finite ? width : 0, log_sum,
           {RowOf<int32_t>(args.top_ids, i), RowOf<float>(args.top_logprobs, i), width});
  *RowOf<float>(args.logprob, i) =
      known ? static_cast<float>(target - log_sum) : std::numeric_limits<float>::quiet_NaN();
  *RowOf<int32_t>(args.rank, i) = known ? static_cast<int32_t>(view.CountAbove(target)) + 1 : 0;
}

}  // namespace

absl::Status SampleCpu(const OpContext& ctx, const SampleArgs& args) {
  return ForEachRow(ctx, args.logits.dim(0), args.logits.dim(1),
                    [&](int64_t i, SampleRowView& view) { SampleOne(args, i, view); });
}

absl::Status TokenLogprobsCpu(const OpContext& ctx, const TokenLogprobsArgs& args) {
  return ForEachRow(ctx, args.logits.dim(0), args.logits.dim(1),
                    [&](int64_t i, SampleRowView& view) { ScoreOne(args, i, view); });
}

int64_t SampleCpuWorkspaceBytes(Device& device, int64_t max_rows, int64_t vocabulary) {
  const ThreadPool& pool = *device.thread_pool();
  return std::max<int64_t>(1, Lanes(pool, max_rows)) * SampleScratchBytes(vocabulary) + 256;
}

}  // namespace millrace
