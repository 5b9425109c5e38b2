// On Hopper: kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh with the activation at the end of a tile. A
// tile's two boxes are 16 gates and their 16 ups.
#include <cuda_bf16.h>

#include "kernels/fp8_gated/fp8_gated_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring_launch.cuh"

namespace millrace {
namespace {

using S = fp8_ring::Shape<2, 2, 16, 3, 2, 1>;
constexpr int kOutputs = S::kBoxRows;  // of a tile
static_assert(S::kThreads % kOutputs == 0);

// A thread has an output of every tile.
template <bool kBlocks>
struct GatedProduct {
  const Fp8GemmKernelArgs& args;
  int ups, tiles;  // first row of the ups

  __device__ __forceinline__ int FirstRow(int tile, int box) const {
    return box * ups + tile * kOutputs;
  }
  __device__ __forceinline__ void Finish(const fp8_ring::Shared<S>& shared, int tile) const {
    const int row = threadIdx.x % kOutputs;
    for (int token = threadIdx.x / kOutputs; token < args.tokens; token += S::kThreads / kOutputs) {
      float gate = fp8_ring::SumOf(shared, row, token);
      float up = fp8_ring::SumOf(shared, kOutputs + row, token);
      if constexpr (!kBlocks) {
        gate *= shared.x_scale[token] * shared.weight_scale[0][0][threadIdx.x];
        up *= shared.x_scale[token] * shared.weight_scale[0][1][threadIdx.x];
      }
      static_cast<__nv_bfloat16*>(args.y)[token * args.y_stride + tile * kOutputs + row] =
          __float2bfloat16(gate / (1.0f + __expf(-gate)) * up);
    }
  }
};

template <bool kBlocks>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    GatedRing(const __grid_constant__ Fp8GemmKernelArgs args,
              const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t memory[];
  const int ups = args.outputs / 2;
  const GatedProduct<kBlocks> product = {args, ups, ups / kOutputs};
  fp8_ring::Run<S, kBlocks>(args, map, *reinterpret_cast<fp8_ring::Shared<S>*>(memory), product);
#endif
}

}  // namespace

cudaError_t LaunchFp8GatedRing(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                               cudaStream_t stream) {
  return fp8_ring::LaunchKernel<S>(args.blocks ? GatedRing<true> : GatedRing<false>, args,
                                   multiprocessors, stream);
}

}  // namespace millrace
