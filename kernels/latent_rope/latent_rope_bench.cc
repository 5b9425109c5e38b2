// LatentRope of the published models: queries with their norm, latent rows, and the way back behind
// the attention; tokens being decoded, and a prefill.
//
//   bazel run -c opt //kernels/latent_rope:latent_rope_bench
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/bench_bed.h"
#include "kernels/core/check.h"
#include "kernels/latent_rope/latent_rope.h"
#include "kernels/latent_rope/latent_rope_cases.h"

namespace millrace {
namespace {

void Bench(BenchBed& bed, const LatentRopeServed& c) {
  constexpr int64_t kDim = 512, kPairs = 32;
  const DType dtype = bed.activations();
  const BenchOperand x = bed.Operand(dtype, {c.tokens, c.heads, kDim});
  std::vector<int64_t> at;
  for (int64_t t = 0; t < c.tokens; ++t) at.push_back(100 + t);
  std::vector<float> frequencies;
  for (int i = 0; i < kPairs; ++i) {
    frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / kPairs));
  }
  const BenchOperand positions = bed.Integers(DType::kI32, at);
  const BenchOperand inv_freq = bed.Floats(frequencies);
  const int64_t changed = c.norm ? kDim : 2 * kPairs;
  const auto count = static_cast<double>(c.tokens * c.heads * changed);
  bed.Row(absl::StrCat(c.tokens, " x ", c.heads, c.norm ? ", norm" : "", c.inverse ? ", back" : ""),
          {.bytes = 2 * count * static_cast<double>(DTypeBytes(dtype)),
           .flops = (c.norm ? 4 : 3) * count},
          [&](int64_t i) {
            LatentRopeArgs args = {.x = x.At(i),
                                   .positions = positions.At(0),
                                   .inv_freq = inv_freq.At(0),
                                   .inverse = c.inverse};
            if (c.norm) args.norm_eps = 1e-6f;
            MR_CHECK(LatentRope(bed.ctx(), args).ok());
          });
}

void BenchAll(BenchBed& bed) {
  for (const LatentRopeServed& c : kLatentRopeServed) {
    if (!c.large || bed.on_cuda()) Bench(bed, c);
  }
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::BenchMain(argc, argv, millrace::BenchAll); }
