// What serving numerics do to index queries and keys, so that both fit FP4.
#ifndef KERNELS_LATENT_CACHE_HADAMARD_FP4_H_
#define KERNELS_LATENT_CACHE_HADAMARD_FP4_H_

#include <cstdint>

namespace millrace {

// Channels of a scale.
inline constexpr int64_t kHadamardFp4Block = 32;
inline constexpr int64_t kHadamardFp4MaxDim = 1024;

// Whether ApplyHadamardFp4 takes rows of `dim` channels: a power of two from kHadamardFp4Block to
// kHadamardFp4MaxDim.
constexpr bool HadamardFp4Covers(int64_t dim) {
  return dim >= kHadamardFp4Block && dim <= kHadamardFp4MaxDim && (dim & (dim - 1)) == 0;
}

// row <- row H / sqrt(dim), H the Walsh-Hadamard matrix in natural order, rounded to bf16; then
// each kHadamardFp4Block channels <- e2m1(x / scale) * scale with scale 2^ceil(log2(amax / 6)), at
// least 2^-126. All results are bf16 values. NaN and infinities spread over the row as NaN. Host
// memory; any thread. REQUIRES: HadamardFp4Covers(dim).
void ApplyHadamardFp4(float* row, int64_t dim);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_HADAMARD_FP4_H_
