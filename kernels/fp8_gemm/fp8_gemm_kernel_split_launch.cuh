// Launch of the kernel that splits K over clusters with given traits.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_LAUNCH_CUH_

#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_split.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_split {

template <typename T>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, int splits, cudaStream_t stream) {
  Maps maps = {};
  if (const cudaError_t error = fp8_maps::MakeMaps<T>(args, maps); error != cudaSuccess)
    return error;
  const int64_t tiles = (args.outputs + T::kOutputs - 1) / T::kOutputs;
  return Launch(Fp8GemmSplitK<T>,
                {.grid = dim3(static_cast<unsigned>(tiles * splits)),
                 .block = dim3(T::kThreads),
                 .shared_bytes = sizeof(typename T::Smem),
                 .cluster = splits},
                stream, args, splits, maps);
}

}  // namespace millrace::fp8_split

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_LAUNCH_CUH_
