// Any dtypes and strides: a warp computes one output of up to kTokens tokens. For what the fast
// paths leave: f32 operands, unaligned rows.
#include <cuda_bf16.h>

#include "kernels/linear/linear_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kTokens = 4;

__device__ __forceinline__ float At(const void* data, bool bf16, int64_t i) {
  return bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i])
              : static_cast<const float*>(data)[i];
}

__global__ void __launch_bounds__(32 * kWarps)
    LinearGeneric(const __grid_constant__ LinearKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int lane = threadIdx.x % 32;
  const int output = blockIdx.x * kWarps + threadIdx.x / 32;
  if (output >= args.outputs) return;
  for (int first = blockIdx.y * kTokens; first < args.tokens; first += gridDim.y * kTokens) {
    const int tokens = min(kTokens, args.tokens - first);
    float sums[kTokens] = {};
    for (int k = lane; k < args.inputs; k += 32) {
      const float w = At(args.weight, args.weight_bf16, output * args.weight_stride + k);
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        if (i < tokens) {
          sums[i] += w * At(args.x, args.x_bf16, (first + i) * args.x_stride + k);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      for (int d = 16; d > 0; d /= 2) sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], d);
      if (lane != 0 || i >= tokens) continue;
      const float bias = args.bias == nullptr ? 0.0f : At(args.bias, args.bias_bf16, output);
      const int64_t at = (first + i) * args.y_stride + output;
      if (args.y_bf16) {
        static_cast<__nv_bfloat16*>(args.y)[at] = __float2bfloat16(sums[i] + bias);
      } else {
        static_cast<float*>(args.y)[at] = sums[i] + bias;
      }
    }
  }
}

}  // namespace

cudaError_t LaunchLinearGeneric(const LinearKernelArgs& args, cudaStream_t stream) {
  constexpr int kMaxGridY = 65535;
  const int rows = (args.tokens + kTokens - 1) / kTokens;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.outputs + kWarps - 1) / kWarps),
                   static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY)),
      .block = dim3(32 * kWarps)};
  return Launch(LinearGeneric, shape, stream, args);
}

}  // namespace millrace
