// What the .cu files and linear_cuda.cc both see.
#ifndef KERNELS_LINEAR_LINEAR_KERNEL_H_
#define KERNELS_LINEAR_LINEAR_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As LinearArgs. Strides in elements.
struct LinearKernelArgs {
  const void* x = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  // or null
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t inputs = 0;
  int32_t outputs = 0;
  bool x_bf16 = false;
  bool weight_bf16 = false;
  bool bias_bf16 = false;
  bool y_bf16 = false;
};
static_assert(std::is_trivially_copyable_v<LinearKernelArgs>);

// How the streaming kernel cuts a product: kernels/tile/skinny_gemm.cuh.
struct LinearSkinnyShape {
  int token_tiles;    // of 8 tokens
  int row_tiles;      // of 16 outputs, a block
  int warps;          // of a block
  int unroll;         // pieces in flight a warp
  int blocks_per_sm;  // that registers must leave room for
};
inline constexpr LinearSkinnyShape kLinearSkinnyShapes[] = {
    {1, 1, 8, 4, 2}, {1, 1, 8, 3, 3}, {1, 2, 8, 2, 2}, {2, 2, 8, 3, 1}, {2, 2, 8, 2, 2},
    {2, 4, 8, 1, 2}, {2, 4, 4, 2, 2}};

// Index into kLinearSkinnyShapes. The fewer tiles of outputs there are for each multiprocessor, the
// more warps share one; with many tokens a block takes more outputs, since each block reads x.
int ChooseLinearSkinny(int32_t tokens, int32_t outputs, int32_t multiprocessors);

// REQUIRES: all of x and weight bf16, their rows on 16 bytes, inputs a multiple of 64,
// 1 <= tokens <= 8 token_tiles.
cudaError_t LaunchLinearSkinny(int shape, const LinearKernelArgs& args, cudaStream_t stream);

// Any dtypes, shapes and strides; one warp an output, slow.
cudaError_t LaunchLinearGeneric(const LinearKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_LINEAR_LINEAR_KERNEL_H_
