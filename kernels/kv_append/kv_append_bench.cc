// KvAppend, against the memory's bandwidth (it reads k and v and writes the rows).
//
//   bazel run -c opt //kernels/kv_append:kv_append_bench
#include <numeric>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/kv_append/kv_append_cases.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, const KvAppendCase& c) {
  const DType from = bed.on_cuda() ? DType::kBF16 : c.from;
  const BenchOperand k = bed.Operand(from, {c.tokens, c.heads, c.dim});
  const BenchOperand v = bed.Operand(from, {c.tokens, c.heads, c.dim});
  const BenchOperand k_cache = bed.Operand(c.cache, {c.pages, c.heads, c.page_tokens, c.dim});
  const BenchOperand v_cache = bed.Operand(c.cache, {c.pages, c.heads, c.page_tokens, c.dim});
  std::vector<int64_t> counted(static_cast<size_t>(c.tokens));
  std::iota(counted.begin(), counted.end(), 0);
  const BenchOperand slots = bed.Integers(DType::kI64, counted);
  const BenchOperand scale = bed.Floats(std::vector<float>(static_cast<size_t>(c.heads), 0.01f));
  const TensorView scales = c.cache == DType::kU8 ? scale.At(0) : TensorView{};
  const double elements = static_cast<double>(2 * c.tokens * c.heads * c.dim);
  const double width = static_cast<double>(DTypeBytes(from) + DTypeBytes(c.cache));
  bed.Row(c.name, {.bytes = elements * width}, [&](int64_t i) {
    MR_CHECK(KvAppend(bed.ctx(), {.k = k.At(i),
                                  .v = v.At(i),
                                  .slots = slots.At(0),
                                  .k_cache = k_cache.At(i),
                                  .v_cache = v_cache.At(i),
                                  .k_scale = scales,
                                  .v_scale = scales})
                 .ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const KvAppendCase& c : kKvAppendServed) Bench(bed, c);
  if (!bed.on_cuda()) return;
  for (const KvAppendCase& c : kKvAppendServedOnGpu) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
