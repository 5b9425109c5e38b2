// MoeExperts in NVFP4 with rounded activations, tokens that choose at random among the routed
// experts of DeepSeek-V4-Flash.
//
//   bazel run -c opt //kernels/moe_experts:moe_experts_bench
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_experts/moe_experts_cases.h"

namespace millrace {
namespace {

struct Stack {
  BenchOperand codes, scales, factors;
  int64_t count, rows, cols;

  StoredMatrix At(int64_t i) const {
    return {.format = StoredFormat::kNvFp4,
            .count = count,
            .rows = rows,
            .cols = cols,
            .values = codes.At(i),
            .scales = scales.At(i),
            .factors = factors.At(i)};
  }
};

// Any bits are codes, and some scales are NaN, which cost what numbers do.
Stack MakeStack(BenchBed& bed, int64_t count, int64_t rows, int64_t cols) {
  return {bed.Operand(DType::kU8, {count, rows, cols / 2}),
          bed.Operand(DType::kU8, {count, rows, cols / 16}),
          bed.Floats(std::vector<float>(static_cast<size_t>(count), 0.01f)),
          count,
          rows,
          cols};
}

// Distinct experts of each token.
std::vector<int64_t> Choices(int64_t tokens, const MoeExpertsServed& s) {
  std::mt19937_64 random(7);
  std::vector<int64_t> choices;
  for (int64_t t = 0; t < tokens; ++t) {
    std::set<int64_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < s.chosen) {
      chosen.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(s.experts)));
    }
    choices.insert(choices.end(), chosen.begin(), chosen.end());
  }
  return choices;
}

void Bench(BenchBed& bed, int64_t tokens, const MoeExpertsServed& s) {
  const Stack gate = MakeStack(bed, s.experts, s.width, s.hidden);
  const Stack up = MakeStack(bed, s.experts, s.width, s.hidden);
  const Stack down = MakeStack(bed, s.experts, s.hidden, s.width);
  const std::vector<int64_t> chosen = Choices(tokens, s);
  const auto read = static_cast<double>(std::set<int64_t>(chosen.begin(), chosen.end()).size());
  const BenchOperand x = bed.Operand(bed.activations(), {tokens, s.hidden});
  const BenchOperand y = bed.Operand(DType::kF32, {tokens, s.hidden});
  const BenchOperand weights = bed.Operand(DType::kF32, {tokens, s.chosen});
  const BenchOperand experts = bed.Integers(DType::kI32, chosen);
  const double bytes = read * 3 * static_cast<double>(s.width * s.hidden) * (0.5 + 1.0 / 16);
  bed.Row(
      absl::StrCat(tokens, " tokens, ", read, " experts"),
      {.bytes = bytes, .flops = 6.0 * static_cast<double>(tokens * s.chosen * s.width * s.hidden)},
      [&](int64_t i) {
        TensorView ids = experts.At(i);
        ids.rank = 2;
        ids.dims = {tokens, s.chosen};
        ids.strides = {s.chosen, 1};
        MR_CHECK(MoeExperts(bed.ctx(), {.x = x.At(i),
                                        .experts = ids,
                                        .weights = weights.At(i),
                                        .gate = gate.At(i),
                                        .up = up.At(i),
                                        .down = down.At(i),
                                        .limit = 10,
                                        .rounding = ActivationRounding::kFp8Per128,
                                        .y = y.At(i)})
                     .ok());
      });
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) return Bench(bed, 2, {512, 256, 8, 2});
  for (int64_t tokens : {1, 4, 16, 64, 128, 256, 1024}) Bench(bed, tokens, kMoeExpertsServed);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
