// Fp8Gated at LLaMA-3.1-8B's width, and beside it the two ops that do the same through memory.
//
//   bazel run -c opt //kernels/fp8_gated:fp8_gated_bench
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/fp8_gated/fp8_gated.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {
namespace {

constexpr int64_t kInputs = 4096, kOutputs = 14336;

void Bench(BenchBed& bed, int64_t tokens) {
  const BenchOperand x = bed.Operand(DType::kU8, {tokens, kInputs});
  const BenchOperand x_scale = bed.Operand(DType::kF32, {tokens});
  const BenchOperand weight = bed.Operand(DType::kU8, {2 * kOutputs, kInputs});
  const BenchOperand weight_scale = bed.Operand(DType::kF32, {2 * kOutputs});
  const BenchOperand gate_up = bed.Operand(DType::kBF16, {tokens, 2 * kOutputs});
  const BenchOperand y = bed.Operand(DType::kBF16, {tokens, kOutputs});
  const auto count = Fp8GemmFlags(bed.device());
  MR_CHECK(count.ok());
  const BenchOperand flags =
      bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(*count), 0));
  const double weights = 2.0 * kOutputs * kInputs;
  const BenchWork work = {.bytes = weights, .flops = 2 * weights * static_cast<double>(tokens)};
  const auto shape = absl::StrCat(tokens, " x ", kInputs, " -> ", kOutputs);
  bed.Row(absl::StrCat(shape, ", one op"), work, [&](int64_t i) {
    MR_CHECK(Fp8Gated(bed.ctx(), {.x = x.At(i),
                                  .x_scale = x_scale.At(i),
                                  .weight = weight.At(i),
                                  .weight_scale = weight_scale.At(i),
                                  .y = y.At(i)})
                 .ok());
  });
  bed.Row(absl::StrCat(shape, ", two"), work, [&](int64_t i) {
    MR_CHECK(Fp8Gemm(bed.ctx(), {.x = x.At(i),
                                 .x_scale = x_scale.At(i),
                                 .weight = weight.At(i),
                                 .weight_scale = weight_scale.At(i),
                                 .y = gate_up.At(i),
                                 .flags = flags.At(i),
                                 .scales = Fp8GemmScales::kVectors})
                 .ok());
    MR_CHECK(Swiglu(bed.ctx(), {.x = gate_up.At(i), .y = y.At(i), .block = kOutputs}).ok());
  });
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) return;  // the two are what the CPU does
  for (const int64_t tokens : {1, 2, 4, 8}) Bench(bed, tokens);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
