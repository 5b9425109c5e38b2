// Launch of the kernel that splits K over clusters with given traits.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_LAUNCH_CUH_

#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_split.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_split {

template <typename T>
cudaError_t MakeMaps(const Fp8GemmKernelArgs& a, Maps& maps) {
  using fp8_maps::Codes;
  using fp8_maps::MakeMap;
  EncodeTiled encode = nullptr;
  cudaError_t error = FindEncoder(encode);
  if (error != cudaSuccess) return error;
  error =
      MakeMap(encode, Codes(a.weight, a.outputs, a.inputs, a.weight_stride, T::kOutputs), maps.w);
  if (error != cudaSuccess) return error;
  error = MakeMap(encode, Codes(a.x, a.tokens, a.inputs, a.x_stride, T::kTokens), maps.x);
  if (error != cudaSuccess || !a.blocks) return error;
  const int depth_blocks = (a.inputs + T::kDepth - 1) / T::kDepth;
  return MakeMap(encode,
                 fp8_maps::Scales(a.x_scale, depth_blocks, a.tokens, a.x_scale_stride, T::kTokens),
                 maps.x_scale);
}

template <typename T>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, int splits, cudaStream_t stream) {
  Maps maps = {};
  if (const cudaError_t error = MakeMaps<T>(args, maps); error != cudaSuccess) return error;
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
