// Sums of a stage of K, tokens along the columns of wgmma, scaled and added up.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_

#include <cuda_runtime.h>

namespace millrace {

// A thread has two tokens of each eight: 2 t and 2 t + 1, t = lane % 4.
//
// Load() belongs ahead of the stage's products: behind them the last loads were still on their way
// when the arrival that gives the stage back overtook them, and now and then found the next stage's
// scales (README.md).
template <int kTokens, bool kBlocks>
struct TokenScales {
  // scales: of the stage's tokens, in shared memory. kPairs: they lie on 8 bytes.
  template <bool kPairs>
  __device__ __forceinline__ void Load(const float* scales) {
    if constexpr (kBlocks) {
      scales += threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        if constexpr (kPairs) {
          pair[j] = *reinterpret_cast<const float2*>(scales + 8 * j);
        } else {
          pair[j] = {scales[8 * j], scales[8 * j + 1]};
        }
      }
    }
  }

  // total += part * scales of tokens and weights; as they are without scales of blocks.
  __device__ __forceinline__ void Add(const float (&part)[kTokens / 2], float w_scale,
                                      float (&total)[kTokens / 2]) const {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float2 scale = {1, 1};
      if constexpr (kBlocks) scale = {pair[j].x * w_scale, pair[j].y * w_scale};
      total[4 * j] += part[4 * j] * scale.x;
      total[4 * j + 1] += part[4 * j + 1] * scale.y;
      total[4 * j + 2] += part[4 * j + 2] * scale.x;
      total[4 * j + 3] += part[4 * j + 3] * scale.y;
    }
  }

  float2 pair[kBlocks ? kTokens / 8 : 1];
};

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_
