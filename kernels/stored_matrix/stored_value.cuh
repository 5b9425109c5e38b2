// One value of a stored matrix in device code, bit for bit as kernels/lowp dequantises it, and the
// scale of rounded activations (ActivationRounding::kFp8Per128).
#ifndef KERNELS_STORED_MATRIX_STORED_VALUE_CUH_
#define KERNELS_STORED_MATRIX_STORED_VALUE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/ptx/fp8.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/stored_matrix/stored_matrix_args.h"

namespace millrace {

__device__ __forceinline__ float E4M3Value(uint32_t code) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(WidenE4M3Pair(code))));
}

// 2^(code - 127), 255 a NaN.
__device__ __forceinline__ float E8M0Value(uint32_t code) {
  if (code == 255) return __uint_as_float(0x7fffffffu);
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
}

// Its bits are the top ones of an f16 that is 2^-14 as large.
__device__ __forceinline__ float E2M1Value(uint32_t code) {
  const uint32_t half = (code & 8) << 12 | (code & 7) << 9;
  return __half2float(__ushort_as_half(static_cast<uint16_t>(half))) * 16384.0f;
}

// Scale `at` of an FP8 matrix.
__device__ __forceinline__ float TileScale(const StoredMatrixArgs& m, int64_t at) {
  return m.f32_scales ? static_cast<const float*>(m.scales)[at]
                      : E8M0Value(static_cast<const uint8_t*>(m.scales)[at]);
}

// REQUIRES: m.format == kFormat.
template <StoredFormat kFormat>
__device__ __forceinline__ float StoredValue(const StoredMatrixArgs& m, int index, int row,
                                             int col) {
  const int64_t at = (int64_t{index} * m.rows + row) * m.cols + col;
  if constexpr (kFormat == StoredFormat::kF32) return static_cast<const float*>(m.values)[at];
  if constexpr (kFormat == StoredFormat::kBF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(m.values)[at]);
  }
  const uint8_t* const codes = static_cast<const uint8_t*>(m.values);
  const uint8_t* const scales = static_cast<const uint8_t*>(m.scales);
  const auto scale_at = [&](int r, int c) {
    return (int64_t{index} * m.scale_rows + r) * m.scale_cols + c;
  };
  if constexpr (kFormat == StoredFormat::kFp8) {
    return E4M3Value(codes[at]) *
           TileScale(m, scale_at((m.tile_row + row) / 128, (m.tile_col + col) / 128));
  }
  const float value = E2M1Value(codes[at / 2] >> (at % 2 * 4) & 15);
  if constexpr (kFormat == StoredFormat::kMxFp4) {
    return value * E8M0Value(scales[scale_at(row, col / 32)]);
  }
  const float scaled = value * E4M3Value(scales[scale_at(row, col / 16)]);
  const float factor = m.factors[index];
  return m.divides ? scaled / factor : scaled * factor;
}

// Below it magnitudes of activations count as it.
inline constexpr float kSmallestActivationAmax = 1e-4f;

// 2^ceil(log2(amax / 448)).
__device__ __forceinline__ float ActivationScaleOf(float amax) {
  CodeArgs args = {};
  args.rounding = CodeScale::kPowerOfTwo;
  return ScaleOf(amax, args);
}

// Rows of activations, strides in elements.
struct ActivationRows {
  const void* from = nullptr;
  int64_t stride = 0;
  int32_t cols = 0;
  bool bf16 = false;
};

// What a lane has of 128 channels of a row: those at lane + 32 i, zeros past the end.
struct ActivationGroup {
  float x[4];

  __device__ __forceinline__ ActivationGroup(const ActivationRows& rows, int row, int group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int col = Column(group, i);
      const int64_t at = row * rows.stride + col;
      x[i] = 0;
      if (col >= rows.cols) continue;
      x[i] = rows.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(rows.from)[at])
                       : static_cast<const float*>(rows.from)[at];
    }
  }

  __device__ __forceinline__ static int Column(int group, int i) {
    return group * kCodeGroup + i * 32 + static_cast<int>(threadIdx.x) % 32;
  }

  // The values as E4M3 codes; returns their scale. All lanes take part.
  __device__ __forceinline__ float Encode(uint32_t (&codes)[4]) const {
    float amax = kSmallestActivationAmax;
#pragma unroll
    for (int i = 0; i < 4; ++i) amax = fmaxf(amax, fabsf(x[i]));
#pragma unroll
    for (int d = 16; d > 0; d /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
    const float scale = ActivationScaleOf(amax), inverse = InverseOf(scale);
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] = EncodeE4M3Pair(__fmul_rn(x[i], inverse), 0) & 0xff;
    return scale;
  }

  // Each value as FP8 has it. All lanes take part.
  __device__ __forceinline__ void Round() {
    uint32_t codes[4];
    const float scale = Encode(codes);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = E4M3Value(codes[i]) * scale;
  }
};

}  // namespace millrace

#endif  // KERNELS_STORED_MATRIX_STORED_VALUE_CUH_
