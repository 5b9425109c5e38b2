// LatentAppend of DeepSeek-V4's rows, against the memory's bandwidth (each row is read and written
// once).
//
//   bazel run -c opt //kernels/latent_append:latent_append_bench
#include <numeric>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/latent_append/latent_append.h"
#include "kernels/latent_append/latent_append_cases.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, const LatentAppendServed& c) {
  constexpr int64_t kPageTokens = 128;
  const int64_t width = LatentRowWidth(c.store, kFp8LatentDim);
  const int64_t pages = (c.tokens + kPageTokens - 1) / kPageTokens;
  const BenchOperand rows = bed.Operand(bed.activations(), {c.tokens, kFp8LatentDim});
  const BenchOperand store = bed.Operand(c.store, {pages, 1, kPageTokens, width});
  std::vector<int64_t> counted(static_cast<size_t>(c.tokens));
  std::iota(counted.begin(), counted.end(), 0);
  const BenchOperand slots = bed.Integers(DType::kI64, counted);
  const int64_t row_bytes = kFp8LatentDim * DTypeBytes(bed.activations());
  const int64_t bytes = c.tokens * (row_bytes + width * DTypeBytes(c.store));
  bed.Row(c.name, {.bytes = static_cast<double>(bytes)}, [&](int64_t i) {
    MR_CHECK(
        LatentAppend(bed.ctx(), {.rows = rows.At(i), .slots = slots.At(0), .store = store.At(i)})
            .ok());
  });
}

void BenchAll(BenchBed& bed) {
  for (const LatentAppendServed& c : kLatentAppendServed) Bench(bed, c);
  if (!bed.on_cuda()) return;
  for (const LatentAppendServed& c : kLatentAppendServedOnGpu) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
