// Launch of the kernel for many tokens with given traits.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_LAUNCH_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_LAUNCH_CUH_

#include <type_traits>

#include "kernels/fp8_gemm/fp8_gemm_kernel_maps.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::fp8_tiles {

struct TileGrid {
  int64_t tiles = 0;  // at most
  int multiprocessors = 0;
};

template <typename T, typename Rest>
cudaError_t MakeMaps(const Fp8GemmKernelArgs& a, Maps& maps) {
  using fp8_maps::Codes;
  using fp8_maps::MakeMap;
  EncodeTiled encode = nullptr;
  cudaError_t error = FindEncoder(encode);
  if (error != cudaSuccess) return error;
  error = MakeMap(encode, Codes(a.x, a.tokens, a.inputs, a.x_stride, T::kRows), maps.x);
  if (error != cudaSuccess) return error;
  const int64_t weight_rows = int64_t{a.groups - 1} * a.weight_group_rows + a.outputs;
  error =
      MakeMap(encode, Codes(a.weight, weight_rows, a.inputs, a.weight_stride, T::kBoxRows), maps.w);
  if (error != cudaSuccess) return error;
  if constexpr (!std::is_void_v<Rest>) {
    error = MakeMap(encode, Codes(a.weight, weight_rows, a.inputs, a.weight_stride, Rest::kBoxRows),
                    maps.rest_w);
    if (error != cudaSuccess) return error;
  }
  if (a.blocks) {
    const int depth_blocks = (a.inputs + T::kDepth - 1) / T::kDepth;
    error = MakeMap(
        encode, fp8_maps::Scales(a.x_scale, depth_blocks, a.tokens, a.x_scale_stride, T::kScaleBox),
        maps.x_scale);
    if (error != cudaSuccess) return error;
  }
  if constexpr (T::kGated) {
    return MakeMap(encode,
                   Codes(a.gated.codes, a.tokens, a.outputs / 2, a.gated.codes_stride, kWarpRows),
                   maps.y);
  }
  if (!StoresBoxes(a)) return cudaSuccess;
  return MakeMap(encode,
                 {a.y, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a.tokens, a.outputs, a.y_stride * 2,
                  kWarpRows, 64, CU_TENSOR_MAP_SWIZZLE_128B},
                 maps.y);
}

template <typename T, typename Rest = void>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, const typename T::Work::Params& work,
                       const TileGrid& grid, cudaStream_t stream) {
  Maps maps = {};
  if (const cudaError_t error = MakeMaps<T, Rest>(args, maps); error != cudaSuccess) return error;
  const int64_t blocks = grid.tiles < grid.multiprocessors ? grid.tiles : grid.multiprocessors;
  return Launch(Fp8GemmTiles<T, Rest>,
                {.grid = dim3(static_cast<unsigned>(blocks)),
                 .block = dim3(T::kThreads),
                 .shared_bytes = sizeof(typename T::Smem)},
                stream, args, work, maps);
}

}  // namespace millrace::fp8_tiles

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_LAUNCH_CUH_
