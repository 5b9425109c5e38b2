// Any shapes and strides: a warp computes one output of up to kTokens tokens. For what the fast
// paths leave: unaligned rows, other GPUs.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GENERIC_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GENERIC_CUH_

#include <cuda_fp8.h>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_generic {

inline constexpr int kWarps = 8;
inline constexpr int kTokens = 4;
inline constexpr int kBlock = 128;

__device__ __forceinline__ float Decode(uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

__device__ __forceinline__ float Scale(const Fp8GemmKernelArgs& a, int token, int output, int k) {
  if (!a.blocks) {
    return a.x_scale[token * a.x_scale_stride] * a.weight_scale[output * a.weight_scale_stride];
  }
  return a.x_scale[k / kBlock * a.x_scale_stride + token] *
         a.weight_scale[output / kBlock * a.weight_scale_stride + k / kBlock];
}

// The outputs of this block of a grid of ShapeOf().
__device__ __forceinline__ void Multiply(const Fp8GemmKernelArgs& args) {
  const int lane = threadIdx.x % 32;
  const int output = blockIdx.x * kWarps + threadIdx.x / 32;
  if (output >= args.outputs) return;
  for (int first = blockIdx.y * kTokens; first < args.tokens; first += gridDim.y * kTokens) {
    float sums[kTokens] = {};
    for (int k = lane; k < args.inputs; k += 32) {
      const float w = Decode(args.weight[output * args.weight_stride + k]);
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        const int token = first + i;
        if (token >= args.tokens) break;
        sums[i] += w * Decode(args.x[token * args.x_stride + k]) * Scale(args, token, output, k);
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      for (int d = 16; d > 0; d /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], d);
      if (lane != 0 || first + i >= args.tokens) continue;
      if (HasAddends(args)) sums[i] = WithAddends(args, first + i, output, sums[i]);
      StoreElement(args, first + i, output, sums[i]);
    }
  }
}

// For products of at most `tokens` tokens.
inline LaunchShape ShapeOf(const Fp8GemmKernelArgs& args, int tokens) {
  constexpr int kMaxGridY = 65535;
  const int rows = (tokens + kTokens - 1) / kTokens;
  return {.grid = dim3(static_cast<unsigned>((args.outputs + kWarps - 1) / kWarps),
                       static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY)),
          .block = dim3(32 * kWarps)};
}

}  // namespace millrace::fp8_generic

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_GENERIC_CUH_
