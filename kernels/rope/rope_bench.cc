// Rope, against the memory's bandwidth (it reads and writes x once).
//
//   bazel run -c opt //kernels/rope:rope_bench
#include <numeric>
#include <vector>

#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cases.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, const RopeCase& c) {
  const DType dtype = bed.on_cuda() ? DType::kBF16 : c.dtype;
  const BenchOperand x = bed.Operand(dtype, {c.tokens, c.heads, c.dim});
  std::vector<int64_t> counted(static_cast<size_t>(c.tokens));
  std::iota(counted.begin(), counted.end(), 0);
  const BenchOperand positions = bed.Integers(DType::kI32, counted);
  const BenchOperand inv_freq =
      bed.Floats(std::vector<float>(static_cast<size_t>(c.dim / 2), 0.37f));
  const double elements = static_cast<double>(c.tokens * c.heads * c.dim);
  bed.Row(c.name,
          {.bytes = 2 * elements * static_cast<double>(DTypeBytes(dtype)), .flops = 3 * elements},
          [&](int64_t i) {
            MR_CHECK(Rope(bed.ctx(),
                          {.x = x.At(i), .positions = positions.At(0), .inv_freq = inv_freq.At(0)})
                         .ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const RopeCase& c : kRopeServed) Bench(bed, c);
  if (!bed.on_cuda()) return;
  for (const RopeCase& c : kRopeServedOnGpu) Bench(bed, c);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
