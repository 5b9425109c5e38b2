// Few tokens: see kernels/tile/skinny_gemm.cuh for the schedule.
#include "kernels/linear/linear_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/tile/skinny_gemm.cuh"

namespace millrace {
namespace {

__device__ __forceinline__ float Bias(const LinearKernelArgs& args, int output) {
  if (args.bias == nullptr) return 0;
  if (args.bias_bf16) return __bfloat162float(static_cast<const __nv_bfloat16*>(args.bias)[output]);
  return static_cast<const float*>(args.bias)[output];
}

template <int kShape>
__global__ void __launch_bounds__(SkinnyTraits<kShape>::Gemm::kThreads,
                                  SkinnyTraits<kShape>::kBlocksPerSm)
    LinearSkinny(const __grid_constant__ LinearKernelArgs args) {
  using Gemm = typename SkinnyTraits<kShape>::Gemm;
  __shared__ typename Gemm::Shared shared;
  const int first_row = blockIdx.x * Gemm::kRows;
  const SkinnyOperands operands = {.x = static_cast<const __nv_bfloat16*>(args.x),
                                   .weight = static_cast<const __nv_bfloat16*>(args.weight),
                                   .x_stride = args.x_stride,
                                   .weight_stride = args.weight_stride,
                                   .tokens = args.tokens,
                                   .inputs = args.inputs,
                                   .outputs = args.outputs};
  Gemm::Run(operands, first_row, shared);
  for (int i = threadIdx.x; i < Gemm::kRows * args.tokens; i += Gemm::kThreads) {
    const int output = first_row + i % Gemm::kRows;
    const int token = i / Gemm::kRows;
    if (output >= args.outputs) continue;
    const float y = Gemm::Sum(shared, i % Gemm::kRows, token) + Bias(args, output);
    const int64_t at = token * args.y_stride + output;
    if (args.y_bf16) {
      static_cast<__nv_bfloat16*>(args.y)[at] = __float2bfloat16(y);
    } else {
      static_cast<float*>(args.y)[at] = y;
    }
  }
}

// Grids from here on, an lm_head's, start when all ahead has ended: only an idle multiprocessor
// divides its memory anew into shared memory and L1, and blocks that come one after the other would
// otherwise all run with the little L1 that FP8 products leave (kernels/ptx/README.md).
constexpr unsigned kLongGrid = 4096;

template <int kShape>
cudaError_t LaunchWith(const LinearKernelArgs& args, cudaStream_t stream) {
  using Gemm = typename SkinnyTraits<kShape>::Gemm;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.outputs + Gemm::kRows - 1) / Gemm::kRows)),
      .block = dim3(Gemm::kThreads)};
  if (shape.grid.x < kLongGrid) return Launch(LinearSkinny<kShape>, shape, stream, args);
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, LinearSkinny<kShape>, args);
}

using LaunchFn = cudaError_t (*)(const LinearKernelArgs&, cudaStream_t);
constexpr LaunchFn kLaunch[] = {LaunchWith<0>, LaunchWith<1>, LaunchWith<2>, LaunchWith<3>,
                                LaunchWith<4>};
static_assert(sizeof(kLaunch) / sizeof(LaunchFn) == kSkinnyShapeCount);

}  // namespace

cudaError_t LaunchLinearSkinny(int shape, const LinearKernelArgs& args, cudaStream_t stream) {
  return kLaunch[shape](args, stream);
}

}  // namespace millrace
