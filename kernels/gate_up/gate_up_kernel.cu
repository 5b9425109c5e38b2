// The streaming product of kernels/tile/skinny_gemm.cuh with the activation as its epilogue: a tile
// of 16 rows of W is 8 gates and their 8 ups, so both sums of an output end in one block.
#include "kernels/gate_up/gate_up_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/tile/skinny_gemm.cuh"

namespace millrace {
namespace {

template <int kShape>
__global__ void __launch_bounds__(SkinnyTraits<kShape>::Gemm::kThreads,
                                  SkinnyTraits<kShape>::kBlocksPerSm)
    GateUp(const __grid_constant__ GateUpKernelArgs args) {
  using Gemm = typename SkinnyTraits<kShape>::Gemm;
  __shared__ typename Gemm::Shared shared;
  const int first_row = blockIdx.x * Gemm::kRows;
  Gemm::Run({.x = static_cast<const __nv_bfloat16*>(args.x),
             .weight = static_cast<const __nv_bfloat16*>(args.weight),
             .x_stride = args.x_stride,
             .weight_stride = args.weight_stride,
             .tokens = args.tokens,
             .inputs = args.inputs,
             .outputs = args.rows},
            first_row, shared);
  constexpr int kOutputs = Gemm::kRows / 2;
  for (int i = threadIdx.x; i < kOutputs * args.tokens; i += Gemm::kThreads) {
    const int column = i % kOutputs;
    const int token = i / kOutputs;
    const int output = first_row / 2 + column;
    if (2 * output >= args.rows) continue;
    const int row = column / 8 * 16 + column % 8;
    const float gate = Gemm::Sum(shared, row, token);
    const float up = Gemm::Sum(shared, row + 8, token);
    static_cast<__nv_bfloat16*>(args.y)[token * args.y_stride + output] =
        __float2bfloat16(gate / (1.0f + __expf(-gate)) * up);
  }
}

template <int kShape>
cudaError_t LaunchWith(const GateUpKernelArgs& args, cudaStream_t stream) {
  using Gemm = typename SkinnyTraits<kShape>::Gemm;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.rows + Gemm::kRows - 1) / Gemm::kRows)),
      .block = dim3(Gemm::kThreads)};
  return Launch(GateUp<kShape>, shape, stream, args);
}

using LaunchFn = cudaError_t (*)(const GateUpKernelArgs&, cudaStream_t);
constexpr LaunchFn kLaunch[] = {LaunchWith<0>, LaunchWith<1>};

}  // namespace

cudaError_t LaunchGateUp(int shape, const GateUpKernelArgs& args, cudaStream_t stream) {
  return kLaunch[shape](args, stream);
}

}  // namespace millrace
