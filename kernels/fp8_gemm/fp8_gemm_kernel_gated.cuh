// A wave of gates and the wave of their ups: the activation, and its codes. A thread has two of its
// warp's rows, 8 apart, and of each the columns 8 j + 2 (lane % 4) and the next.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GATED_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GATED_CUH_

#include <cstdint>

#include "kernels/quantize/encode.cuh"

namespace millrace::fp8_tiles {

// Of a thread's two rows of 128 codes.
struct GatedScales {
  float of_row[2];  // unless given
  float inverse[2];
};

// gate <- silu(gate) up, in f32.
__device__ __forceinline__ void Gate(const CodeArgs& out, const float (&up)[64], float (&gate)[64],
                                     GatedScales& scales) {
  float amax[2] = {};
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    gate[i] = __fdividef(gate[i], 1.0f + __expf(-gate[i])) * up[i];
    amax[i / 2 % 2] = fmaxf(amax[i / 2 % 2], fabsf(gate[i]));
  }
  if (out.rounding == CodeScale::kGiven) {
    scales.inverse[0] = scales.inverse[1] = __frcp_rn(*out.scale);
    return;
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    amax[h] = fmaxf(amax[h], __shfl_xor_sync(0xffffffffu, amax[h], 1));
    amax[h] = fmaxf(amax[h], __shfl_xor_sync(0xffffffffu, amax[h], 2));
    scales.of_row[h] = ScaleOf(amax[h], out);
    scales.inverse[h] = InverseOf(scales.of_row[h]);
  }
}

// Rows of 128 bytes of a box, 16 bytes of them in the order of the copy engine's 128-byte swizzle.
// `row`: the thread's first of the box.
__device__ __forceinline__ void StageCodes(const float (&y)[64], const GatedScales& scales, int row,
                                           uint8_t* box) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const pair = y + 4 * j + 2 * h;
      const uint32_t codes = EncodePair<false>(__fmul_rn(pair[0], scales.inverse[h]),
                                               __fmul_rn(pair[1], scales.inverse[h]));
      // Rows 8 apart are swizzled alike.
      uint8_t* const to =
          box + (row + 8 * h) * 128 + ((j / 2) ^ (row & 7)) * 16 + j % 2 * 8 + threadIdx.x % 4 * 2;
      *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(codes);
    }
  }
}

}  // namespace millrace::fp8_tiles

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GATED_CUH_
