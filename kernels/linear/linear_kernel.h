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

// `shape`: index into kSkinnyShapes (kernels/tile/skinny_shapes.h).
// REQUIRES: all of x and weight bf16, their rows on 16 bytes, inputs a multiple of 64,
// 1 <= tokens <= 8 token_tiles.
cudaError_t LaunchLinearSkinny(int shape, const LinearKernelArgs& args, cudaStream_t stream);

// Any dtypes, shapes and strides; one warp an output, slow.
cudaError_t LaunchLinearGeneric(const LinearKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_LINEAR_LINEAR_KERNEL_H_
