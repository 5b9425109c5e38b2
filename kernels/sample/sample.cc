#include "kernels/sample/sample.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/sample/sample_impl.h"

namespace millrace {
namespace {

constexpr OpTable<SampleArgs> kSample = {.op = "Sample", .cpu = SampleCpu, .cuda = SampleCuda};
constexpr OpTable<TokenLogprobsArgs> kTokenLogprobs = {
    .op = "TokenLogprobs", .cpu = TokenLogprobsCpu, .cuda = TokenLogprobsCuda};

// The first field of the row that is out of its range, and what it should be.
struct Fault {
  const char* field = nullptr;
  double value = 0;
  const char* want = nullptr;
};

Fault FindFault(const SampleRow& r) {
  const auto in = [](float x, float low, float high) { return low <= x && x <= high; };
  if (!in(r.temperature, 0, 1e9f)) return {"temperature", r.temperature, "0 or more"};
  if (r.top_k < 0) return {"top_k", double(r.top_k), "0 or more"};
  if (!(r.top_p > 0 && r.top_p <= 1)) return {"top_p", r.top_p, "above 0, up to 1"};
  if (!in(r.min_p, 0, 1)) return {"min_p", r.min_p, "0 to 1"};
  if (!(r.repetition_penalty > 0) || !std::isfinite(r.repetition_penalty)) {
    return {"repetition_penalty", r.repetition_penalty, "above 0"};
  }
  if (!std::isfinite(r.frequency_penalty)) {
    return {"frequency_penalty", r.frequency_penalty, "a finite number"};
  }
  if (!std::isfinite(r.presence_penalty)) {
    return {"presence_penalty", r.presence_penalty, "a finite number"};
  }
  if (r.num_top_logprobs < -1 || r.num_top_logprobs > kSampleTopLogprobs) {
    return {"num_top_logprobs", double(r.num_top_logprobs), "-1 to 20"};
  }
  if (r.num_penalties < 0) return {"num_penalties", double(r.num_penalties), "0 or more"};
  if (r.num_biases < 0) return {"num_biases", double(r.num_biases), "0 or more"};
  if (r.num_banned < 0) return {"num_banned", double(r.num_banned), "0 or more"};
  return {};
}

absl::Status CheckIds(const char* list, const int32_t* ids, int32_t n, int64_t vocabulary) {
  for (int32_t i = 0; i < n; ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("Sample: row.", list, "[", i, "] = ", ids[i], ", want 0 to ", vocabulary - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSampleRow(const SampleRow& row, int64_t vocabulary) {
  if (row.off) return absl::OkStatus();
  const Fault fault = FindFault(row);
  if (fault.field != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("Sample: row.", fault.field, " = ", fault.value, ", want ", fault.want));
  }
  RETURN_IF_ERROR(CheckIds("penalty_ids", row.penalty_ids, row.num_penalties, vocabulary));
  RETURN_IF_ERROR(CheckIds("bias_ids", row.bias_ids, row.num_biases, vocabulary));
  RETURN_IF_ERROR(CheckIds("banned_ids", row.banned_ids, row.num_banned, vocabulary));
  for (int32_t i = 0; i < row.num_biases; ++i) {
    if (std::isfinite(row.bias_values[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "Sample: row.bias_values[", i, "] = ", row.bias_values[i], ", want a finite number"));
  }
  return absl::OkStatus();
}

absl::Status Sample(const OpContext& ctx, const SampleArgs& args) {
  int64_t rows = kUnbound, vocabulary = kUnbound, slots = kUnbound, top = kSampleTopLogprobs;
  ShapeChecker checker("Sample", ctx.device.type());
  checker.Bind("logits", args.logits, {&rows, &vocabulary}, {DType::kF32})
      .Bind("ids", args.ids, {&rows}, {DType::kI32})
      .Bind("flags", args.flags, {&rows}, {DType::kI32})
      .Bind("logprob", args.logprob, {&rows}, {DType::kF32})
      .Bind("top_ids", args.top_ids, {&rows, &top}, {DType::kI32})
      .Bind("top_logprobs", args.top_logprobs, {&rows, &top}, {DType::kF32})
      .Require(vocabulary > 0, "logits.dim(1) = 0, want at least 1")
      .Require(args.rows != nullptr || rows == 0, "rows is null");
  if (args.last_tokens) checker.Bind("last_tokens", *args.last_tokens, {&slots}, {DType::kI32});
  RETURN_IF_ERROR(checker.status());
  if (rows == 0) return absl::OkStatus();
  return RunOnDevice(kSample, ctx, args);
}

absl::Status TokenLogprobs(const OpContext& ctx, const TokenLogprobsArgs& args) {
  int64_t rows = kUnbound, vocabulary = kUnbound, top = kUnbound;
  RETURN_IF_ERROR(ShapeChecker("TokenLogprobs", ctx.device.type())
                      .Bind("logits", args.logits, {&rows, &vocabulary}, {DType::kF32})
                      .Bind("targets", args.targets, {&rows}, {DType::kI32})
                      .Bind("logprob", args.logprob, {&rows}, {DType::kF32})
                      .Bind("rank", args.rank, {&rows}, {DType::kI32})
                      .Bind("top_ids", args.top_ids, {&rows, &top}, {DType::kI32})
                      .Bind("top_logprobs", args.top_logprobs, {&rows, &top}, {DType::kF32})
                      .Require(vocabulary > 0, "logits.dim(1) = 0, want at least 1")
                      .Require(top <= kSampleTopLogprobs, "top_ids.dim(1) must be at most 20")
                      .status());
  if (rows == 0) return absl::OkStatus();
  return RunOnDevice(kTokenLogprobs, ctx, args);
}

int64_t SampleWorkspaceBytes(Device& device, int64_t max_rows, int64_t vocabulary) {
  if (device.type() == DeviceType::kCuda) return SampleCudaWorkspaceBytes(max_rows, vocabulary);
  return SampleCpuWorkspaceBytes(device, max_rows, vocabulary);
}

}  // namespace millrace
