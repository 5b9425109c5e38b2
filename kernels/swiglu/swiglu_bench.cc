// Swiglu, for tokens being decoded and a prefill.
//
//   bazel run -c opt //kernels/swiglu:swiglu_bench
#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu/swiglu_cases.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, int64_t tokens, int64_t size, int64_t block) {
  const DType dtype = bed.activations();
  const BenchOperand x = bed.Operand(dtype, {tokens, 2 * size});
  const BenchOperand y = bed.Operand(dtype, {tokens, size});
  const double count = static_cast<double>(tokens * size);
  // By the formula, an exponential counted as one operation.
  bed.Row(absl::StrCat(tokens, " x ", size, block > 0 ? absl::StrCat(", blocks of ", block) : ""),
          {.bytes = 3 * count * static_cast<double>(DTypeBytes(dtype)), .flops = 5 * count},
          [&](int64_t i) {
            MR_CHECK(Swiglu(bed.ctx(), {.x = x.At(i), .y = y.At(i), .block = block}).ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const SwigluServed& c : kSwigluServed) {
    if (!c.large || bed.on_cuda()) Bench(bed, c.tokens, c.size, c.block);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
