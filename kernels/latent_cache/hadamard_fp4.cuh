// ApplyHadamardFp4 (hadamard_fp4.h) on the device, bit for bit: the same sums in the same order,
// and scales that are powers of two.
#ifndef KERNELS_LATENT_CACHE_HADAMARD_FP4_CUH_
#define KERNELS_LATENT_CACHE_HADAMARD_FP4_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ptx/vector.cuh"

namespace millrace {

// row <- row H, in shared memory, by a block of `threads`, of which this is `thread`. Begins and
// ends with a barrier of the block. REQUIRES: dim is a power of two.
__device__ __forceinline__ void HadamardInShared(float* row, int dim, int thread, int threads) {
  __syncthreads();
  for (int half = 1; half < dim; half *= 2) {
    for (int i = thread; i < dim / 2; i += threads) {
      const int j = (i & ~(half - 1)) * 2 + (i & (half - 1));
      const float a = row[j], b = row[j + half];
      row[j] = __fadd_rn(a, b);
      row[j + half] = __fsub_rn(a, b);
    }
    __syncthreads();
  }
}

// e2m1(x) of |x| <= 6, as its value.
__device__ __forceinline__ float RoundedToE2M1(float x) {
  const float magnitude = fabsf(x);
  const float unit = magnitude < 2 ? 0.5f : magnitude < 4 ? 1.0f : 2.0f;
  return copysignf(rintf(magnitude / unit) * unit, x);
}

// Four channels of a row H of `dim` channels, through the factor, bf16 and FP4. All lanes of the
// warp take part, eight neighbouring lanes having the channels of a scale.
__device__ __forceinline__ void RoundHadamardFp4(int dim, Floats<4>* x) {
  constexpr int kScaleLanes = 8;
  constexpr uint32_t kInfinity = 0x7f800000, kMantissa = 0x7fffff;
  const float factor = __fdiv_rn(1.0f, __fsqrt_rn(static_cast<float>(dim)));
  uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    x->v[j] = __bfloat162float(__float2bfloat16_rn(__fmul_rn(x->v[j], factor)));
    most = max(most, __float_as_uint(x->v[j]) & 0x7fffffff);
  }
#pragma unroll
  for (int d = kScaleLanes / 2; d > 0; d /= 2) {
    most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
  }
  // 6 is 1.5 x 2^2: the power is the one of amax / 4, or the next above a mantissa of 1.5; at least
  // 2^-126.
  const int exponent =
      max(static_cast<int>(most >> 23) - 2 + ((most & kMantissa) > 0x400000 ? 1 : 0), 1);
  const float scale = __uint_as_float(static_cast<uint32_t>(exponent) << 23);
  const float inverse = __uint_as_float(static_cast<uint32_t>(254 - exponent) << 23);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float rounded = __fmul_rn(RoundedToE2M1(__fmul_rn(x->v[j], inverse)), scale);
    x->v[j] = most >= kInfinity ? __uint_as_float(0x7fc00000) : rounded;
  }
}

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_HADAMARD_FP4_CUH_
