// Fp8Gemm with scales of blocks at the shapes of DeepSeek-V3: tokens being decoded, and a prefill.
//
//   bazel run -c opt //kernels/fp8_gemm:fp8_gemm_bench
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_gemm/fp8_gemm_cases.h"

namespace millrace {
namespace {

// u8 operands hold any bits, NaNs too, which cost the tensor cores what numbers do.
void Bench(BenchBed& bed, int64_t tokens, const Fp8GemmServed& s) {
  const int64_t depth = s.inputs / kFp8GemmBlock;
  const BenchOperand x = bed.Operand(DType::kU8, {tokens, s.inputs});
  const BenchOperand x_scale = bed.Operand(DType::kF32, {depth, (tokens + 3) / 4 * 4});
  const BenchOperand weight = bed.Operand(DType::kU8, {s.outputs, s.inputs});
  const BenchOperand weight_scale =
      bed.Operand(DType::kF32, {(s.outputs + kFp8GemmBlock - 1) / kFp8GemmBlock, depth});
  const BenchOperand y = bed.Operand(bed.activations(), {tokens, s.outputs});
  const auto count = Fp8GemmFlags(bed.device());
  MR_CHECK(count.ok());
  const BenchOperand flags = bed.Integers(
      DType::kI32, std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(1, *count)), 0));
  const double weights = static_cast<double>(s.outputs * s.inputs);
  const double others =
      static_cast<double>(tokens * (s.inputs + s.outputs * DTypeBytes(bed.activations())));
  bed.Row(absl::StrCat(tokens, " x ", s.inputs, " -> ", s.outputs),
          {.bytes = weights + others, .flops = 2 * weights * static_cast<double>(tokens)},
          [&](int64_t i) {
            MR_CHECK(Fp8Gemm(bed.ctx(), {.x = x.At(i),
                                         .x_scale = x_scale.At(i).Cols(0, tokens),
                                         .weight = weight.At(i),
                                         .weight_scale = weight_scale.At(i),
                                         .y = y.At(i),
                                         .flags = flags.At(i)})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (int64_t tokens : {1, 8, 16, 32, 64, 4096}) {
    if (tokens > 1 && !bed.on_cuda()) continue;
    for (const Fp8GemmServed& s : kFp8GemmServed) Bench(bed, tokens, s);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
