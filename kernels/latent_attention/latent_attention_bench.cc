// LatentAttention by its multiply-adds; rows are read once a token, and those of a window stay in
// the caches.
//
//   bazel run -c opt //kernels/latent_attention:latent_attention_bench -- [--threads=N]
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/latent_attention/latent_attention.h"
#include "kernels/latent_attention/latent_attention_cases.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr int64_t kPageTokens = 128, kHeads = 64, kDim = kFp8LatentDim, kWindow = 128;

std::vector<int64_t> Multiples(int64_t step, int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = i * step;
  return values;
}

// Of each token: as many entries as it may choose, spread over those that the first one sees.
std::vector<int64_t> Selection(const LatentAttentionServed& c) {
  std::vector<int64_t> values;
  const int64_t visible = c.before / c.ratio;
  for (int64_t t = 0; t < c.sequences * c.tokens; ++t) {
    for (int64_t i = 0; i < c.chosen; ++i) values.push_back(i * visible / c.chosen);
  }
  return values;
}

TensorView Shaped(const BenchOperand& operand, int64_t rows, int64_t cols) {
  const TensorView v = operand.At(0);
  return TensorView::Of(v.data, v.dtype, {rows, cols}, v.device);
}

// FP8 rows of noise. Bytes of all values hold NaNs and subnormals, which a GPU takes at the same
// speed; for the CPU codes below 1 and scales near 1.
BenchOperand Rows(BenchBed& bed, int64_t pages, int64_t page_rows) {
  BenchOperand rows = bed.Operand(DType::kU8, {pages, 1, page_rows, kFp8LatentBytes});
  const TensorView v = rows.At(0);
  if (v.device == DeviceType::kCpu) {
    for (int64_t i = 0; i < v.size(); ++i) v.as<uint8_t>()[i] &= 0x3f;
  }
  return rows;
}

void Run(BenchBed& bed, const LatentAttentionServed& c) {
  const int64_t length = c.before + c.tokens, tokens = c.sequences * c.tokens;
  const int64_t pages = (length + kPageTokens - 1) / kPageTokens;
  const BenchOperand q = bed.Operand(bed.activations(), {tokens, kHeads, kDim});
  const BenchOperand out = bed.Operand(bed.activations(), {tokens, kHeads, kDim});
  const BenchOperand sinks = bed.Operand(DType::kF32, {kHeads});
  const BenchOperand window = Rows(bed, c.sequences * pages, kPageTokens);
  const BenchOperand compressed =
      Rows(bed, c.sequences * pages, kPageTokens / std::max<int64_t>(c.ratio, 1));
  const BenchOperand selected =
      bed.Integers(DType::kI32, c.chosen > 0 ? Selection(c) : std::vector<int64_t>{0});
  const BenchOperand starts = bed.Integers(DType::kI32, Multiples(c.tokens, c.sequences + 1));
  const BenchOperand lengths =
      bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(c.sequences), length));
  const BenchOperand table = bed.Integers(DType::kI32, Multiples(1, c.sequences * pages));
  const auto args = [&](int64_t i) {
    LatentAttentionArgs a = {.q = q.At(i),
                             .window_rows = window.At(i),
                             .sinks = sinks.At(i),
                             .batch = {.q_start = starts.At(i),
                                       .kv_len = lengths.At(i),
                                       .page_table = Shaped(table, c.sequences, pages)},
                             .out = out.At(i),
                             .window = kWindow,
                             .scale = 0.05f};
    if (c.ratio > 0) a.compressed_rows = compressed.At(i);
    if (c.chosen > 0) a.selected = Shaped(selected, tokens, c.chosen);
    return a;
  };
  int64_t far = c.chosen;
  if (c.ratio > 0 && c.chosen == 0) far = length / c.ratio;
  const double keys = static_cast<double>(tokens * (kWindow + far));
  bed.Row(c.name, {.bytes = keys * kFp8LatentBytes, .flops = 4 * keys * kHeads * kDim},
          [&](int64_t i) { MR_CHECK(LatentAttention(bed.ctx(), args(i)).ok()); });
}

void Bench(BenchBed& bed) {
  for (const LatentAttentionServed& c : kLatentAttentionServed) Run(bed, c);
  if (!bed.on_cuda()) return;
  for (const LatentAttentionServed& c : kLatentAttentionServedOnGpu) Run(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::Bench); }
