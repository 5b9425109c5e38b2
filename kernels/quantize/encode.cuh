// Elements to FP8 codes, eight at a time, in device code: amax, scale, rounding, store. Every
// operation is one IEEE rounding or exact, as quantize.h has it.
#ifndef KERNELS_QUANTIZE_ENCODE_CUH_
#define KERNELS_QUANTIZE_ENCODE_CUH_

#include <cfloat>
#include <cstdint>

#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/quantize/code_args.h"

namespace millrace {

inline constexpr int kCodeGroup = 128;                           // kQuantizeGroup
inline constexpr int kCodeWidth = 8;                             // elements a thread takes at once
inline constexpr int kCodeGroupLanes = kCodeGroup / kCodeWidth;  // that have a group

// NaN counts as nothing, as fmaxf() has it.
__device__ __forceinline__ float Amax(const Floats<kCodeWidth>& x) {
  float amax = 0;
#pragma unroll
  for (int j = 0; j < kCodeWidth; ++j) amax = fmaxf(amax, fabsf(x.v[j]));
  return amax;
}

// The largest of sixteen neighbouring lanes, in each. All lanes of the warp take part.
__device__ __forceinline__ float GroupMax(float x) {
#pragma unroll
  for (int d = kCodeGroupLanes / 2; d > 0; d /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  }
  return x;
}

// The largest of the block of at most 32 warps, in every thread. Twice in a kernel only with a
// __syncthreads() between.
__device__ __forceinline__ float BlockMax(float x) {
  __shared__ float parts[32];
#pragma unroll
  for (int d = 16; d > 0; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float most = parts[0];
  for (int i = 1; i < blockDim.x / 32; ++i) most = fmaxf(most, parts[i]);
  return most;
}

// amax / 448 or 57344, rounded once, of at least 2^-126 x that; below it any number that is smaller
// than 2^-126. The quotient's remainder is exact, so one step from a neighbour of it suffices
// (compared with the division of all floats).
__device__ __forceinline__ float DividedByMax(float amax, bool e5m2) {
  const float max = e5m2 ? 57344.0f : 448.0f;
  const float inverse = e5m2 ? 1 / 57344.0f : 1 / 448.0f;
  const float near = __fmul_rn(amax, inverse);
  return __fmaf_rn(__fmaf_rn(-near, max, amax), inverse, near);
}

// REQUIRES: the scale is not given.
__device__ __forceinline__ float ScaleOf(float amax, const CodeArgs& args) {
  amax = fminf(amax, FLT_MAX);
  if (args.rounding == CodeScale::kF32) return fmaxf(DividedByMax(amax, args.e5m2), FLT_MIN);
  // 448 is 1.75 x 2^8 and 57344 is 1.75 x 2^15: the power is the one of amax / 2^8 or 2^15, or the
  // next above a mantissa of 1.75.
  const uint32_t bits = __float_as_uint(amax);
  const int exponent =
      static_cast<int>(bits >> 23) - (args.e5m2 ? 15 : 8) + ((bits & 0x7fffff) > 0x600000 ? 1 : 0);
  return __uint_as_float(static_cast<uint32_t>(max(exponent, 1)) << 23);
}

// 1 / scale, rounded once, of what ScaleOf() gives: between 2^-126 and 2^120 the hardware's
// reciprocal and one step are exact (compared with __frcp_rn() of all).
__device__ __forceinline__ float InverseOf(float scale) {
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(scale));
  return __fmaf_rn(near, __fmaf_rn(-scale, near, 1.0f), near);
}

template <bool kE5M2>
__device__ __forceinline__ uint32_t EncodePair(float low, float high) {
  return kE5M2 ? EncodeE5M2Pair(low, high) : EncodeE4M3Pair(low, high);
}

template <bool kE5M2>
__device__ __forceinline__ uint2 EncodeAs(const Floats<kCodeWidth>& x, float inverse) {
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    const float* const v = x.v + 4 * w;
    words[w] = EncodePair<kE5M2>(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)) |
               EncodePair<kE5M2>(__fmul_rn(v[2], inverse), __fmul_rn(v[3], inverse)) << 16;
  }
  return make_uint2(words[0], words[1]);
}

// Eight codes, the first in the lowest byte; `inverse` is 1 / scale, rounded once.
__device__ __forceinline__ uint2 Encode(const Floats<kCodeWidth>& x, float inverse, bool e5m2) {
  return e5m2 ? EncodeAs<true>(x, inverse) : EncodeAs<false>(x, inverse);
}

// Byte j of eight codes.
__device__ __forceinline__ uint8_t CodeAt(uint2 codes, int j) {
  return static_cast<uint8_t>((j < 4 ? codes.x : codes.y) >> (j % 4 * 8));
}

// Codes i to i + 7 of a row. Aligned: rows of codes start on 8 bytes, and i + 8 <= args.size.
__device__ __forceinline__ void StoreAligned(const CodeArgs& args, int64_t row, int i,
                                             uint2 codes) {
  *reinterpret_cast<uint2*>(args.codes + row * args.codes_stride + i) = codes;
}

// Eight elements that sixteen neighbouring lanes have of each group: scale and codes. All lanes of
// the warp take part; `in`: whether there are such elements. Rows of codes start on 8 bytes.
__device__ __forceinline__ void StoreGroup(const CodeArgs& args, int64_t row, int i, bool in,
                                           const Floats<kCodeWidth>& x) {
  const float scale = ScaleOf(GroupMax(Amax(x)), args);
  if (!in) return;
  if (i % kCodeGroup == 0) args.scale[i / kCodeGroup * args.scale_stride + row] = scale;
  StoreAligned(args, row, i, Encode(x, InverseOf(scale), args.e5m2));
}

// A row that the block has in registers: word n of a thread are elements 8 threadIdx.x + n step and
// on, zeros past the end of the row. REQUIRES: step is a multiple of 256, rows of codes start on 8
// bytes and have a multiple of 8.
template <RowUnit kUnit, int kWords>
__device__ __forceinline__ void StoreRow(const CodeArgs& args, int64_t row, int step,
                                         const Vec<__nv_bfloat16, kCodeWidth> (&x)[kWords]) {
  const int first = static_cast<int>(threadIdx.x) * kCodeWidth;
  if constexpr (kUnit == RowUnit::kGroup) {
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      StoreGroup(args, row, i, i < args.size, Widened(x[n]));
    }
    return;
  }
  float inverse;
  if constexpr (kUnit == RowUnit::kGiven) {
    inverse = __frcp_rn(*args.scale);
  } else {
    float amax = 0;
#pragma unroll
    for (int n = 0; n < kWords; ++n) amax = fmaxf(amax, Amax(Widened(x[n])));
    const float scale = ScaleOf(BlockMax(amax), args);
    if (threadIdx.x == 0) args.scale[row] = scale;
    inverse = InverseOf(scale);
  }
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first + n * step;
    if (i < args.size) StoreAligned(args, row, i, Encode(Widened(x[n]), inverse, args.e5m2));
  }
}

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_ENCODE_CUH_
