// QuantizeFp8Gemm at the o_proj and down_proj of LLaMA-3.1-8B, and beside it the two ops that do
// the same.
//
//   bazel run -c opt //kernels/quantize_fp8_gemm:quantize_fp8_gemm_bench
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, int64_t inputs, int64_t outputs) {
  const BenchOperand x = bed.Operand(DType::kBF16, {1, inputs});
  const BenchOperand codes = bed.Operand(DType::kU8, {1, inputs});
  const BenchOperand scale = bed.Operand(DType::kF32, {1});
  const BenchOperand weight = bed.Operand(DType::kU8, {outputs, inputs});
  const BenchOperand weight_scale = bed.Operand(DType::kF32, {outputs});
  const BenchOperand y = bed.Operand(DType::kBF16, {1, outputs});
  const auto count = Fp8GemmFlags(bed.device());
  MR_CHECK(count.ok());
  const BenchOperand flags =
      bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(*count), 0));
  const double weights = static_cast<double>(outputs) * static_cast<double>(inputs);
  const BenchWork work = {.bytes = weights, .flops = 2 * weights};
  const auto shape = absl::StrCat(inputs, " -> ", outputs);
  // Smaller GPUs may have no tile for each.
  if (QuantizeFp8GemmCovers(bed.device(), inputs, outputs).value_or(false)) {
    bed.Row(absl::StrCat(shape, ", one op"), work, [&](int64_t i) {
      MR_CHECK(QuantizeFp8Gemm(bed.ctx(), {.x = x.At(i),
                                           .weight = weight.At(i),
                                           .weight_scale = weight_scale.At(i),
                                           .y = y.At(i),
                                           .bias = {}})
                   .ok());
    });
  }
  bed.Row(absl::StrCat(shape, ", two"), work, [&](int64_t i) {
    MR_CHECK(Quantize(bed.ctx(), {.x = x.At(i),
                                  .codes = codes.At(i),
                                  .scale = scale.At(i),
                                  .unit = QuantizeUnit::kToken})
                 .ok());
    MR_CHECK(Fp8Gemm(bed.ctx(), {.x = codes.At(i),
                                 .x_scale = scale.At(i),
                                 .weight = weight.At(i),
                                 .weight_scale = weight_scale.At(i),
                                 .y = y.At(i),
                                 .flags = flags.At(i),
                                 .scales = Fp8GemmScales::kVectors})
                 .ok());
  });
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) return;  // the two are what the CPU does
  Bench(bed, 4096, 4096);
  Bench(bed, 14336, 4096);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
