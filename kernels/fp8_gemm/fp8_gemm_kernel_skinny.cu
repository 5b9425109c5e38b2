// Up to 8 tokens: fp8_gemm_kernel_skinny.cuh has the schedule.
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_skinny.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace {
namespace {

using fp8_skinny::Shape;

template <typename S, bool kBlocks>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    Skinny(const __grid_constant__ Fp8GemmKernelArgs args) {
  __shared__ fp8_skinny::Shared<S> shared;
  int first_rows[S::kRowTiles];
#pragma unroll
  for (int r = 0; r < S::kRowTiles; ++r) first_rows[r] = blockIdx.x * S::kRows + 16 * r;
  fp8_skinny::Run<S, kBlocks>(args, first_rows, shared);
  for (int i = threadIdx.x; i < S::kRows * args.tokens; i += S::kThreads) {
    const int row = i % S::kRows, token = i / S::kRows;
    const int output = first_rows[0] + row;
    if (output >= args.outputs) continue;
    float sum = fp8_skinny::SumOf<S>(shared, row, token);
    if constexpr (!kBlocks) {
      sum *= args.x_scale[token * args.x_scale_stride] *
             args.weight_scale[output * args.weight_scale_stride];
    }
    StoreElement(args, token, output, WithAddends(args, token, output, sum));
  }
}

template <typename S>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.outputs + S::kRows - 1) / S::kRows)),
      .block = dim3(S::kThreads)};
  return args.blocks ? Launch(Skinny<S, true>, shape, stream, args)
                     : Launch(Skinny<S, false>, shape, stream, args);
}

}  // namespace

cudaError_t LaunchFp8GemmSkinny(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                                cudaStream_t stream) {
  // The fastest of thirteen on an H200 (2026-11-30) at 1 and 8 tokens: 28672 x 4096, 4096 x 14336,
  // 6144 x 4096 and 4096 x 4096; few_tokens.md has the table. Small blocks overlap their begins and
  // ends where many come one after the other, long rows want the more warps.
  const int tiles = (args.outputs + 15) / 16;
  if (tiles > 4 * multiprocessors) return LaunchWith<Shape<2, 4, 2, 4>>(args, stream);
  if (args.inputs >= 64 * fp8_skinny::kPiece) return LaunchWith<Shape<1, 16, 2, 2>>(args, stream);
  return LaunchWith<Shape<2, 8, 2, 2>>(args, stream);
}

}  // namespace millrace
