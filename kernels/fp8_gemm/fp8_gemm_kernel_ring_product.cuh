// The product itself by fp8_gemm_kernel_ring.cuh.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_PRODUCT_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_PRODUCT_CUH_

#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring_launch.cuh"

namespace millrace::fp8_ring {

// y = x w'. A thread has an output of every tile.
template <typename S, bool kBlocks>
struct Product {
  const Fp8GemmKernelArgs& args;
  int tiles;

  __device__ __forceinline__ int FirstRow(int tile, int) const { return tile * S::kRows; }
  __device__ __forceinline__ void Finish(const Shared<S>& shared, int tile) const {
    constexpr int kAtOnce = S::kThreads / S::kRows;  // tokens
    const int row = threadIdx.x % S::kRows, output = tile * S::kRows + row;
    if (threadIdx.x >= kAtOnce * S::kRows || output >= args.outputs) return;
    for (int token = threadIdx.x / S::kRows; token < args.tokens; token += kAtOnce) {
      float sum = SumOf(shared, row, token);
      if constexpr (!kBlocks) {
        sum *= shared.x_scale[token] * shared.weight_scale[0][0][threadIdx.x];
      }
      StoreElement(args, token, output, WithAddends(args, token, output, sum));
    }
  }
};

template <typename S, bool kBlocks>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    Multiply(const __grid_constant__ Fp8GemmKernelArgs args,
             const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t memory[];
  const Product<S, kBlocks> product = {args, (args.outputs + S::kRows - 1) / S::kRows};
  Run<S, kBlocks>(args, map, *reinterpret_cast<Shared<S>*>(memory), product);
#endif
}

template <typename S, bool kBlocks>
cudaError_t LaunchProduct(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  return LaunchKernel<S>(Multiply<S, kBlocks>, args, multiprocessors, stream);
}

}  // namespace millrace::fp8_ring

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_PRODUCT_CUH_
