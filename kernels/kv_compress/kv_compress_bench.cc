// KvCompress of DeepSeek-V4's compressors, against the memory's bandwidth: every projection is read
// once (those of unfinished windows kept as well), and every row written once.
//
//   bazel run -c opt //kernels/kv_compress:kv_compress_bench
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/kv_compress/kv_compress.h"
#include "kernels/kv_compress/kv_compress_cases.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr int64_t kPageTokens = 128;

// 0, 1, ...
std::vector<int64_t> Counted(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

// What a call must move, in bytes.
double BytesOf(const KvCompressServed& c, const KvCompressShape& shape) {
  const int64_t end = c.before + c.tokens;
  const int64_t entries = end / c.ratio - c.before / c.ratio;
  const int64_t read = c.tokens * shape.projected() * 2;
  // Of tokens of earlier steps: those of the first entry.
  const int64_t windows = shape.overlap && c.before >= c.ratio ? c.ratio : 0;
  const int64_t earlier = entries > 0 ? (c.before % c.ratio + windows) * 2 * shape.dim : 0;
  const int64_t first_kept = end / c.ratio * c.ratio - (shape.overlap ? c.ratio : 0);
  const int64_t kept = (end - std::max(first_kept, c.before)) * shape.state_width();
  const int64_t row = LatentRowWidth(c.store, shape.dim) * DTypeBytes(c.store);
  return static_cast<double>(c.sequences * (4 * (read + earlier + kept) + entries * row));
}

void Bench(BenchBed& bed, const KvCompressServed& c) {
  const bool overlap = c.ratio == 4;
  const KvCompressShape shape = {.ratio = c.ratio, .dim = c.dim, .overlap = overlap};
  const int64_t tokens = c.sequences * c.tokens, end = c.before + c.tokens;
  const int64_t pages = (end + kPageTokens - 1) / kPageTokens;
  const int64_t width = LatentRowWidth(c.store, c.dim);
  const BenchOperand kv = bed.Operand(DType::kF32, {tokens, shape.projected()});
  const BenchOperand score = bed.Operand(DType::kF32, {tokens, shape.projected()});
  const BenchOperand ape = bed.Operand(DType::kF32, {c.ratio, shape.projected()});
  const BenchOperand weight = bed.Operand(bed.activations(), {c.dim});
  const BenchOperand inv_freq = bed.Floats(std::vector<float>(kFp8LatentRopeDim / 2, 0.01f));
  const BenchOperand state =
      bed.Operand(DType::kF32, {c.sequences, shape.state_rows(), shape.state_width()});
  const BenchOperand carry =
      bed.Operand(DType::kF32, {c.sequences * pages, 1, 1, overlap ? shape.carry_width() : 1});
  const BenchOperand store =
      bed.Operand(c.store, {c.sequences * pages, 1, kPageTokens / c.ratio, width});
  std::vector<int64_t> starts = Counted(c.sequences + 1);
  for (int64_t& start : starts) start *= c.tokens;
  const BenchOperand q_start = bed.Integers(DType::kI32, starts);
  const BenchOperand kv_len =
      bed.Integers(DType::kI32, std::vector<int64_t>(static_cast<size_t>(c.sequences), end));
  const BenchOperand table = bed.Integers(DType::kI32, Counted(c.sequences * pages));
  const BenchOperand slots = bed.Integers(DType::kI32, Counted(c.sequences));
  const PagedBatch batch = {
      .q_start = q_start.At(0),
      .kv_len = kv_len.At(0),
      .page_table =
          TensorView::Of(table.At(0).data, DType::kI32, {c.sequences, pages}, bed.device().type())};
  bed.Row(c.name, {.bytes = BytesOf(c, shape)}, [&](int64_t i) {
    KvCompressArgs args = {.kv = kv.At(i),
                           .score = score.At(i),
                           .ape = ape.At(0),
                           .norm_weight = weight.At(0),
                           .inv_freq = inv_freq.At(0),
                           .batch = batch,
                           .state_slots = slots.At(0),
                           .state = state.At(i),
                           .store = store.At(i),
                           .norm_eps = 1e-6f,
                           .hadamard_fp4 = c.dim == 128};
    if (overlap) args.carry = carry.At(i);
    MR_CHECK(KvCompress(bed.ctx(), args).ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const KvCompressServed& c : kKvCompressServed) Bench(bed, c);
  if (!bed.on_cuda()) return;
  for (const KvCompressServed& c : kKvCompressServedOnGpu) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
