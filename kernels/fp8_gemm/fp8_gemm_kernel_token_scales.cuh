// Sums of a stage of K, tokens along the columns of wgmma, scaled and added up.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace millrace {

// A thread has two tokens of each eight: 2 t and 2 t + 1, t = lane % 4. kPairs: the scales of both
// lie on 8 bytes.
template <int kTokens, bool kBlocks, bool kPairs>
struct TokenScales {
  // scales: of the stage's tokens, in shared memory.
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

  // One lane of the warp, to give the stage back. Which one depends on every load of Load(), so
  // that it cannot do so before: an arrival does not wait for loads ahead of it that nobody has
  // used yet, and overtook some, which then found the next stage's scales (few_tokens.md). The
  // lanes of tokens 0 and 1, 0, 4 ... 28, read the same bits and choose one of themselves.
  __device__ __forceinline__ int Leader() const {
    uint32_t bits = 0;
    if constexpr (kBlocks) {
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        bits ^= __float_as_uint(pair[j].x);
        if constexpr (!kPairs) bits ^= __float_as_uint(pair[j].y);
      }
    }
    return static_cast<int>(bits % 8) * 4;
  }

  float2 pair[kBlocks ? kTokens / 8 : 1];
};

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TOKEN_SCALES_CUH_
