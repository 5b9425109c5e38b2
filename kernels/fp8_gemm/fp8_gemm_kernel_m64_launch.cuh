// Launch of the kernel with tokens on the 64-row side with given traits.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_LAUNCH_CUH_

#include "kernels/fp8_gemm/fp8_gemm_kernel_m64.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_m64 {

template <typename T>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, const Fp8GemmGroups& groups,
                       cudaStream_t stream) {
  if (groups.splits > T::kMostSplits || 6 % groups.splits != 0) return cudaErrorInvalidValue;
  Maps maps = {};
  if (const cudaError_t error = fp8_maps::MakeMaps<T>(args, maps); error != cudaSuccess)
    return error;
  return Launch(Fp8GemmM64<T>,
                {.grid = dim3(static_cast<unsigned>(groups.groups * groups.splits)),
                 .block = dim3(T::kThreads),
                 .shared_bytes = sizeof(typename T::Smem),
                 .cluster = groups.splits},
                stream, args, groups, maps);
}

}  // namespace millrace::fp8_m64

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_M64_LAUNCH_CUH_
