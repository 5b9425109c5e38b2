// IndexSelect by its multiply-adds, each key against all heads of a token, and by what must move
// once: keys, queries and what is chosen.
//
//   bazel run -c opt //kernels/index_select:index_select_bench -- [--threads=N]
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/index_select/index_select.h"
#include "kernels/index_select/index_select_cases.h"

namespace millrace {
namespace {

constexpr int64_t kPageTokens = 128, kRatio = 4, kHeads = 64, kDim = 128, kChosen = 512;

std::vector<int64_t> Multiples(int64_t step, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i * step;
  return values;
}

void Run(BenchBed& bed, const IndexSelectServed& c) {
  const int64_t length = c.before + c.tokens, tokens = c.sequences * c.tokens;
  const int64_t pages = (length + kPageTokens - 1) / kPageTokens;
  const BenchOperand q = bed.Operand(bed.activations(), {tokens, kHeads, kDim});
  const BenchOperand weights = bed.Operand(DType::kF32, {tokens, kHeads});
  const BenchOperand keys =
      bed.Operand(DType::kBF16, {c.sequences * pages, 1, kPageTokens / kRatio, kDim});
  const BenchOperand selected = bed.Integers(DType::kI32, Multiples(0, tokens * kChosen));
  const BenchOperand starts = bed.Integers(DType::kI32, Multiples(c.tokens, c.sequences + 1));
  const BenchOperand lengths =
      bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(c.sequences), length));
  const BenchOperand table = bed.Integers(DType::kI32, Multiples(1, c.sequences * pages));
  const auto shaped = [](TensorView v, int64_t rows, int64_t cols) {
    return TensorView::Of(v.data, v.dtype, {rows, cols}, v.device);
  };
  int64_t scored = 0;
  for (int64_t t = c.before; t < length; ++t) scored += c.sequences * ((t + 1) / kRatio);
  const int64_t bytes =
      c.sequences * (length / kRatio) * kDim * 2 + tokens * (kHeads * kDim * 2 + kChosen * 4);
  bed.Row(c.name,
          {.bytes = static_cast<double>(bytes),
           .flops = 2.0 * static_cast<double>(scored) * kHeads * kDim},
          [&](int64_t i) {
            MR_CHECK(IndexSelect(bed.ctx(),
                                 {.q = q.At(i),
                                  .weights = weights.At(i),
                                  .keys = keys.At(i),
                                  .batch = {.q_start = starts.At(i),
                                            .kv_len = lengths.At(i),
                                            .page_table = shaped(table.At(i), c.sequences, pages)},
                                  .selected = shaped(selected.At(i), tokens, kChosen),
                                  .ratio = kRatio,
                                  .scale = 0.01f,
                                  .hadamard_fp4 = bed.on_cuda()})  // as served there
                         .ok());
          });
}

void Bench(BenchBed& bed) {
  for (const IndexSelectServed& c : kIndexSelectServed) Run(bed, c);
  if (!bed.on_cuda()) return;
  for (const IndexSelectServed& c : kIndexSelectServedOnGpu) Run(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
