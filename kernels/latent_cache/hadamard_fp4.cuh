// ApplyHadamardFp4 (hadamard_fp4.h) on the device, bit for bit: the same sums in the same order,
// and scales that are powers of two.
#ifndef KERNELS_LATENT_CACHE_HADAMARD_FP4_CUH_
#define KERNELS_LATENT_CACHE_HADAMARD_FP4_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ptx/vector.cuh"

namespace millrace {

// The channels of a row that a warp of HadamardOfFours has.
inline constexpr int kHadamardWarp = 128;

// Floats of shared memory that HadamardOfFours needs.
__host__ __device__ constexpr int HadamardSharedFloats(int dim) {
  return dim > kHadamardWarp ? dim : 0;
}

// row <- row H, by a whole block, whose first dim / 4 threads have four neighbouring channels each,
// in order; the others' are not looked at. REQUIRES: dim is a power of two of at least 8.
__device__ __forceinline__ void HadamardOfFours(int dim, int thread, float* shared, Floats<4>* x) {
  const auto butterfly = [](float& a, float& b) {
    const float sum = __fadd_rn(a, b), difference = __fsub_rn(a, b);
    a = sum, b = difference;
  };
  butterfly(x->v[0], x->v[1]);
  butterfly(x->v[2], x->v[3]);
  butterfly(x->v[0], x->v[2]);
  butterfly(x->v[1], x->v[3]);
  for (int d = 1; d < kHadamardWarp / 4 && d < dim / 4; d *= 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, x->v[i], d);
      x->v[i] = (thread & d) == 0 ? __fadd_rn(x->v[i], other) : __fsub_rn(other, x->v[i]);
    }
  }
  const bool in = thread < dim / 4;
  for (int d = kHadamardWarp / 4; d < dim / 4; d *= 2) {
    float4* const fours = reinterpret_cast<float4*>(shared);
    __syncthreads();
    if (in) fours[thread] = make_float4(x->v[0], x->v[1], x->v[2], x->v[3]);
    __syncthreads();
    if (!in) continue;
    const float4 v = fours[thread ^ d];
    const Floats<4> other = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x->v[i] = (thread & d) == 0 ? __fadd_rn(x->v[i], other.v[i]) : __fsub_rn(other.v[i], x->v[i]);
    }
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
