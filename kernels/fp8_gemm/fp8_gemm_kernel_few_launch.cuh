// Launch of the kernel for few tokens with given traits.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_LAUNCH_CUH_

#include "kernels/fp8_gemm/fp8_gemm_kernel_few.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_few {

template <typename T>
cudaError_t MakeMaps(const Fp8GemmKernelArgs& a, Maps& maps) {
  using fp8_maps::Codes;
  EncodeTiled encode = nullptr;
  cudaError_t error = FindEncoder(encode);
  if (error != cudaSuccess) return error;
  const auto make = [&](fp8_maps::Matrix matrix, CUtensorMap& map) {
    // Of groups, whose weights come to more, boxes' own lines were faster
    // (kernels/fp8_grouped_gemm/README.md).
    if constexpr (T::Work::kGroups) matrix.promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    return fp8_maps::MakeMap(encode, matrix, map);
  };
  const int64_t weight_rows = int64_t{a.groups - 1} * a.weight_group_rows + a.outputs;
  error = make(Codes(a.weight, weight_rows, a.inputs, a.weight_stride, T::kOutputs), maps.w);
  if (error != cudaSuccess) return error;
  error = make(Codes(a.x, a.tokens, a.inputs, a.x_stride, T::kTokens), maps.x);
  if (error != cudaSuccess || !a.blocks) return error;
  const int depth_blocks = (a.inputs + T::kDepth - 1) / T::kDepth;
  return make(fp8_maps::Scales(a.x_scale, depth_blocks, a.tokens, a.x_scale_stride, T::kScaleBox),
              maps.x_scale);
}

template <typename T>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, const typename T::Work::Params& work,
                       int64_t blocks, cudaStream_t stream) {
  Maps maps = {};
  if (const cudaError_t error = MakeMaps<T>(args, maps); error != cudaSuccess) return error;
  return Launch(Fp8GemmFew<T>,
                {.grid = dim3(static_cast<unsigned>(blocks)),
                 .block = dim3(T::kThreads),
                 .shared_bytes = sizeof(typename T::Smem)},
                stream, args, work, maps);
}

}  // namespace millrace::fp8_few

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_LAUNCH_CUH_
