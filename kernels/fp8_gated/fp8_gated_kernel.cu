// The streaming product of kernels/fp8_gemm/fp8_gemm_kernel_skinny.cuh with the activation as its
// epilogue. A block's two tiles are 16 gates and their 16 ups, so both sums of an output end in it.
#include <cuda_bf16.h>

#include "kernels/fp8_gated/fp8_gated_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_skinny.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace {
namespace {

// As fp8_gemm cuts as many rows.
using S = fp8_skinny::Shape<2, 4, 2, 4>;
constexpr int kOutputs = 16;  // of a block
static_assert(S::kRows == 2 * kOutputs);

// Sums of this row of the weight and this token, scaled.
template <bool kBlocks>
__device__ __forceinline__ float Scaled(const Fp8GemmKernelArgs& args, float sum, int row,
                                        int token) {
  if constexpr (kBlocks) return sum;
  return sum * (args.x_scale[token * args.x_scale_stride] *
                args.weight_scale[row * args.weight_scale_stride]);
}

template <bool kBlocks>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    Gated(const __grid_constant__ Fp8GemmKernelArgs args) {
  __shared__ fp8_skinny::Shared<S> shared;
  const int first = blockIdx.x * kOutputs, ups = args.outputs / 2;
  fp8_skinny::Run<S, kBlocks>(args, {first, ups + first}, shared);
  for (int i = threadIdx.x; i < kOutputs * args.tokens; i += S::kThreads) {
    const int row = i % kOutputs, token = i / kOutputs, output = first + row;
    const float gate =
        Scaled<kBlocks>(args, fp8_skinny::SumOf<S>(shared, row, token), output, token);
    const float up = Scaled<kBlocks>(args, fp8_skinny::SumOf<S>(shared, kOutputs + row, token),
                                     ups + output, token);
    static_cast<__nv_bfloat16*>(args.y)[token * args.y_stride + output] =
        __float2bfloat16(gate / (1.0f + __expf(-gate)) * up);
  }
}

}  // namespace

cudaError_t LaunchFp8Gated(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.outputs / S::kRows)),
                             .block = dim3(S::kThreads)};
  return args.blocks ? Launch(Gated<true>, shape, stream, args)
                     : Launch(Gated<false>, shape, stream, args);
}

}  // namespace millrace
