// Add of what it is for: a mixture's routed experts in f32 and its shared expert.
//
//   bazel run -c opt //kernels/add:add_bench
#include "absl/strings/str_cat.h"
#include "kernels/add/add.h"
#include "kernels/add/add_cases.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, int64_t tokens, DType dtype) {
  const BenchOperand a = bed.Operand(dtype, {tokens, kAddServedWidth});
  const BenchOperand b = bed.Operand(dtype, {tokens, kAddServedWidth});
  const BenchOperand y = bed.Operand(dtype, {tokens, kAddServedWidth});
  const auto count = static_cast<double>(tokens * kAddServedWidth);
  bed.Row(absl::StrCat(tokens, " x ", kAddServedWidth, dtype == DType::kF32 ? " f32" : " bf16"),
          {.bytes = 3 * count * static_cast<double>(DTypeBytes(dtype)), .flops = count},
          [&](int64_t i) {
            MR_CHECK(Add(bed.ctx(), {.a = a.At(i), .b = b.At(i), .y = y.At(i)}).ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : kAddServedTokens) {
      if (tokens <= 64 || bed.on_cuda()) Bench(bed, tokens, dtype);
    }
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
