// RmsNorm with and without the residual addition: tokens being decoded, and a prefill.
//
//   bazel run -c opt //kernels/rms_norm:rms_norm_bench
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_cases.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, int64_t tokens, int64_t size, bool with_residual) {
  const DType dtype = bed.activations();
  const BenchOperand x = bed.Operand(dtype, {tokens, size});
  const BenchOperand residual = bed.Operand(dtype, {tokens, size});
  const BenchOperand y = bed.Operand(dtype, {tokens, size});
  const BenchOperand weight = bed.Operand(dtype, {size});
  const double count = static_cast<double>(tokens * size);
  const double passes = with_residual ? 4 : 2;
  bed.Row(absl::StrCat(tokens, " x ", size, with_residual ? ", residual" : ""),
          {.bytes = passes * count * static_cast<double>(DTypeBytes(dtype)), .flops = 5 * count},
          [&](int64_t i) {
            RmsNormArgs args{.x = x.At(i), .weight = weight.At(0), .y = y.At(i), .eps = 1e-5f};
            if (with_residual) args.residual = residual.At(i);
            MR_CHECK(RmsNorm(bed.ctx(), args).ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (bool with_residual : {false, true}) {
    for (const RmsNormServed& c : kRmsNormServed) {
      if (c.large && !bed.on_cuda()) continue;
      Bench(bed, c.tokens, c.size, with_residual);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
