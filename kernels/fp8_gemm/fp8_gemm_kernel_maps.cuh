// Host side of the Hopper kernels: tensor maps.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_MAPS_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_MAPS_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/ptx/tensor_map.cuh"

namespace millrace::fp8_maps {

// Of a matrix with rows of `cols` elements, `stride` bytes apart, a box at a time.
struct Matrix {
  const void* data;
  CUtensorMapDataType type;
  int64_t rows, cols, stride;
  int box_rows, box_cols;
  CUtensorMapSwizzle swizzle;
  // What L2 fetches at least where a box misses it.
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
};

inline cudaError_t MakeMap(EncodeTiled encode, const Matrix& m, CUtensorMap& map) {
  const cuuint64_t size[2] = {static_cast<cuuint64_t>(m.cols), static_cast<cuuint64_t>(m.rows)};
  // A single row may have any stride (RowsAligned()), which the encoder would refuse.
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>((m.stride + 15) / 16 * 16)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(m.box_cols),
                             static_cast<cuuint32_t>(m.box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = encode(&map, m.type, 2, const_cast<void*>(m.data), size, stride, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, m.swizzle, m.promotion,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// E4M3 with 128-byte rows of a box.
inline Matrix Codes(const uint8_t* data, int64_t rows, int64_t cols, int64_t stride, int box_rows) {
  return {data, CU_TENSOR_MAP_DATA_TYPE_UINT8, rows, cols, stride, box_rows,
          128,  CU_TENSOR_MAP_SWIZZLE_128B};
}

// Scales of blocks of x: [ceil(K / 128), M].
inline Matrix Scales(const float* data, int64_t rows, int64_t cols, int64_t stride, int box_cols) {
  return {data,     CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rows, cols, stride * 4, 1,
          box_cols, CU_TENSOR_MAP_SWIZZLE_NONE};
}

// Of a product whose blocks have T::kOutputs outputs of all tokens, at most T::kTokens.
template <typename T, typename Maps>
cudaError_t MakeMaps(const Fp8GemmKernelArgs& a, Maps& maps) {
  EncodeTiled encode = nullptr;
  cudaError_t error = FindEncoder(encode);
  if (error != cudaSuccess) return error;
  error =
      MakeMap(encode, Codes(a.weight, a.outputs, a.inputs, a.weight_stride, T::kOutputs), maps.w);
  if (error != cudaSuccess) return error;
  error = MakeMap(encode, Codes(a.x, a.tokens, a.inputs, a.x_stride, T::kTokens), maps.x);
  if (error != cudaSuccess || !a.blocks) return error;
  const int depth_blocks = (a.inputs + T::kDepth - 1) / T::kDepth;
  return MakeMap(encode, Scales(a.x_scale, depth_blocks, a.tokens, a.x_scale_stride, T::kTokens),
                 maps.x_scale);
}

}  // namespace millrace::fp8_maps

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_MAPS_CUH_
