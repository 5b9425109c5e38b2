// RopeAppend on the parts of a qkv row, against the memory's bandwidth (it reads the row once, and
// writes the queries and the cache rows).
//
//   bazel run -c opt //kernels/rope_append:rope_append_bench
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/rope_append/rope_append.h"
#include "kernels/rope_append/rope_append_cases.h"

namespace millrace {
namespace {

// Heads [begin, end) of [T, heads, D].
TensorView Heads(TensorView qkv, int64_t begin, int64_t end) {
  qkv.data = qkv.as<char>() + begin * qkv.stride(1) * DTypeBytes(qkv.dtype);
  qkv.dims[1] = end - begin;
  return qkv;
}

void Bench(BenchBed& bed, const RopeAppendCase& c) {
  const DType from = bed.on_cuda() ? DType::kBF16 : c.from;
  const int64_t keys = c.q_heads, values = keys + c.kv_heads, heads = values + c.kv_heads;
  const BenchOperand qkv = bed.Operand(from, {c.tokens, heads, c.dim});
  const BenchOperand k_cache = bed.Operand(c.cache, {c.pages, c.kv_heads, c.page_tokens, c.dim});
  const BenchOperand v_cache = bed.Operand(c.cache, {c.pages, c.kv_heads, c.page_tokens, c.dim});
  std::vector<int64_t> counted(static_cast<size_t>(c.tokens));
  std::iota(counted.begin(), counted.end(), 0);
  const BenchOperand positions = bed.Integers(DType::kI32, counted);
  const BenchOperand slots = bed.Integers(DType::kI64, counted);
  std::vector<float> frequencies(static_cast<size_t>(c.dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(5e5f, -2.0f * static_cast<float>(i) / static_cast<float>(c.dim));
  }
  const BenchOperand inv_freq = bed.Floats(frequencies);
  const BenchOperand scale = bed.Floats(std::vector<float>(static_cast<size_t>(c.kv_heads), 0.01f));
  const TensorView scales = c.cache == DType::kU8 ? scale.At(0) : TensorView{};
  const double rows = static_cast<double>(c.tokens * c.dim);
  const double queries = 2.0 * static_cast<double>(c.q_heads * DTypeBytes(from));
  const double appended =
      2.0 * static_cast<double>(c.kv_heads * (DTypeBytes(from) + DTypeBytes(c.cache)));
  bed.Row(c.name, {.bytes = rows * (queries + appended)}, [&](int64_t i) {
    const TensorView row = qkv.At(i);
    MR_CHECK(RopeAppend(bed.ctx(), {.q = Heads(row, 0, keys),
                                    .k = Heads(row, keys, values),
                                    .v = Heads(row, values, heads),
                                    .positions = positions.At(0),
                                    .inv_freq = inv_freq.At(0),
                                    .slots = slots.At(0),
                                    .k_cache = k_cache.At(i),
                                    .v_cache = v_cache.At(i),
                                    .k_scale = scales,
                                    .v_scale = scales})
                 .ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const RopeAppendCase& c : kRopeAppendServed) Bench(bed, c);
  if (!bed.on_cuda()) return;
  for (const RopeAppendCase& c : kRopeAppendServedOnGpu) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
