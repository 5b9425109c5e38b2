// Up to 8 tokens on Hopper: fp8_gemm_kernel_ring.cuh has the schedule.
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring_launch.cuh"

namespace millrace {
namespace {

using fp8_ring::Shape;

// y = x w'. A thread has an output of every tile.
template <typename S, bool kBlocks>
struct Product {
  const Fp8GemmKernelArgs& args;
  int tiles;

  __device__ __forceinline__ int FirstRow(int tile, int) const { return tile * S::kRows; }
  __device__ __forceinline__ void Finish(const fp8_ring::Shared<S>& shared, int tile) const {
    constexpr int kAtOnce = S::kThreads / S::kRows;  // tokens
    const int row = threadIdx.x % S::kRows, output = tile * S::kRows + row;
    if (threadIdx.x >= kAtOnce * S::kRows || output >= args.outputs) return;
    for (int token = threadIdx.x / S::kRows; token < args.tokens; token += kAtOnce) {
      float sum = fp8_ring::SumOf(shared, row, token);
      if constexpr (!kBlocks) {
        sum *= shared.x_scale[token] * shared.weight_scale[0][0][threadIdx.x];
      }
      StoreElement(args, token, output, WithAddends(args, token, output, sum));
    }
  }
};

template <typename S, bool kBlocks>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    Ring(const __grid_constant__ Fp8GemmKernelArgs args, const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t memory[];
  const Product<S, kBlocks> product = {args, (args.outputs + S::kRows - 1) / S::kRows};
  fp8_ring::Run<S, kBlocks>(args, map, *reinterpret_cast<fp8_ring::Shared<S>*>(memory), product);
#endif
}

template <typename S>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  return fp8_ring::LaunchKernel<S>(args.blocks ? Ring<S, true> : Ring<S, false>, args,
                                   multiprocessors, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmRing(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                              cudaStream_t stream) {
  // One tile an SM and as much of it in its ring as fits, or two blocks that take many. 128 KiB,
  // and 128 registers with scales of vectors, for short rows, so that o_proj fits beside attention
  // and is there when that ends. A piece is widened ahead where the ring may hold a whole tile.
  const int rows = (args.outputs + multiprocessors - 1) / multiprocessors;
  if (rows <= 16) return LaunchWith<Shape<1, 1, 8, 8, 4, 1>>(args, multiprocessors, stream);
  if (rows <= 32 && args.inputs <= 32 * fp8_ring::kPiece) {
    return LaunchWith<Shape<2, 1, 8, 4, 4, 1, 2>>(args, multiprocessors, stream);
  }
  if (rows <= 32) return LaunchWith<Shape<2, 1, 16, 3, 4, 1>>(args, multiprocessors, stream);
  if (rows <= 48) return LaunchWith<Shape<3, 1, 8, 4, 4, 1, 2>>(args, multiprocessors, stream);
  return LaunchWith<Shape<2, 1, 8, 3, 4, 2>>(args, multiprocessors, stream);
}

}  // namespace millrace
