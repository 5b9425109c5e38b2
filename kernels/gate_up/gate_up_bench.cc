// The fused half of an MLP at LLaMA-3.1-8B's width, on a GPU.
//
//   bazel run -c opt //kernels/gate_up:gate_up_bench
#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/gate_up/gate_up.h"

namespace millrace {
namespace {

constexpr int64_t kInputs = 4096, kOutputs = 14336;

void Bench(BenchBed& bed, int64_t tokens) {
  const BenchOperand x = bed.Operand(DType::kBF16, {tokens, kInputs});
  const BenchOperand weight = bed.Operand(DType::kBF16, {2 * kOutputs, kInputs});
  const BenchOperand y = bed.Operand(DType::kBF16, {tokens, kOutputs});
  const double weights = 2.0 * kOutputs * kInputs;
  bed.Row(absl::StrCat(tokens, " x ", kInputs, " -> ", 2 * kOutputs, " -> ", kOutputs),
          {.bytes = 2 * weights, .flops = 2 * weights * static_cast<double>(tokens)},
          [&](int64_t i) {
            MR_CHECK(GateUp(bed.ctx(), {.x = x.At(i), .weight = weight.At(i), .y = y.At(i)}).ok());
          });
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) return;  // there is no kernel
  for (const int64_t tokens : {1, 2, 4, 8}) Bench(bed, tokens);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
