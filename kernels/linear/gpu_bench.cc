// Linear on a GPU beside cuBLASLt: few tokens at the widths of LLaMA-3.1-8B, cold weights.
//
//   bazel run -c opt //kernels/linear:gpu_bench
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_impl.h"

namespace millrace {
namespace {

struct Shape {
  int64_t outputs, inputs;
};
constexpr Shape kShapes[] = {
    {4096, 4096}, {6144, 4096}, {28672, 4096}, {4096, 14336}, {128256, 4096}};

// Ours over theirs in time, of one product; above 1 ours is faster.
double Bench(BenchBed& bed, int64_t tokens, Shape s) {
  const BenchOperand x = bed.Operand(DType::kBF16, {tokens, s.inputs});
  const BenchOperand weight = bed.Operand(DType::kBF16, {s.outputs, s.inputs});
  const BenchOperand y = bed.Operand(DType::kBF16, {tokens, s.outputs});
  const auto args = [&](int64_t i) {
    return LinearArgs{.x = x.At(i), .weight = weight.At(i), .bias = {}, .y = y.At(i)};
  };
  const double weights = static_cast<double>(s.outputs * s.inputs);
  const double activations = static_cast<double>(tokens * (s.inputs + s.outputs));
  const BenchTime ours = bed.Row(
      absl::StrCat(tokens, " x ", s.inputs, " -> ", s.outputs),
      {.bytes = 2 * (weights + activations), .flops = 2 * weights * static_cast<double>(tokens)},
      [&](int64_t i) { MR_CHECK(Linear(bed.ctx(), args(i)).ok()); });
  const BenchTime theirs =
      bed.Measure([&](int64_t i) { MR_CHECK(LinearCublas(bed.ctx(), args(i)).ok()); });
  const double ratio = theirs.median_seconds / ours.median_seconds;
  bed.Note(absl::StrFormat("  cuBLASLt %.2f us: ours is %.2f x as fast",
                           theirs.median_seconds * 1e6, ratio));
  return ratio;
}

void BenchAll(BenchBed& bed) {
  if (!bed.on_cuda()) return;  // linear_bench is for the CPU
  double logs = 0;
  int count = 0;
  for (const Shape s : kShapes) {
    for (const int64_t tokens : {1, 2, 4, 8, 16}) {
      logs += std::log(Bench(bed, tokens, s));
      ++count;
    }
  }
  bed.Note(absl::StrFormat("geometric mean %.3f x cuBLASLt", std::exp(logs / count)));
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
