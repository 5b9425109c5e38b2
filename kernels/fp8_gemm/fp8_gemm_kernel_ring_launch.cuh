// Launch of a kernel that runs fp8_gemm_kernel_ring.cuh.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_LAUNCH_CUH_

#include <algorithm>

#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_ring {

using Kernel = void (*)(Fp8GemmKernelArgs, CUtensorMap);

template <typename S>
cudaError_t LaunchKernel(Kernel kernel, const Fp8GemmKernelArgs& args, int multiprocessors,
                         cudaStream_t stream) {
  // 1 KiB a block is the system's.
  static_assert(sizeof(Shared<S>) <= 228 * 1024 / S::kBlocksPerSm - 1024);
  EncodeTiled encode = nullptr;
  if (const cudaError_t error = FindEncoder(encode); error != cudaSuccess) return error;
  CUtensorMap map;
  const cudaError_t error = fp8_maps::MakeMap(
      encode,
      fp8_maps::Codes(args.weight, args.outputs, args.inputs, args.weight_stride, S::kBoxRows),
      map);
  if (error != cudaSuccess) return error;
  const int tiles = (args.outputs + S::kRows - 1) / S::kRows;
  const int blocks = std::min(tiles, S::kBlocksPerSm * multiprocessors);
  return Launch(kernel,
                {.grid = dim3(static_cast<unsigned>(blocks)),
                 .block = dim3(S::kThreads),
                 .shared_bytes = sizeof(Shared<S>)},
                stream, args, map);
}

}  // namespace millrace::fp8_ring

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_LAUNCH_CUH_
