// What rms_norm_kernel.cu and rms_norm_cuda.cc both see.
#ifndef KERNELS_RMS_NORM_RMS_NORM_KERNEL_H_
#define KERNELS_RMS_NORM_RMS_NORM_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As RmsNormArgs, bf16 throughout but the weight, which may be f32. Strides in elements.
struct RmsNormKernelArgs {
  const void* x = nullptr;
  void* residual = nullptr;  // or null
  const void* weight = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t residual_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t size = 0;
  float eps = 0;
};
static_assert(std::is_trivially_copyable_v<RmsNormKernelArgs>);

enum class RmsNormVariant : uint8_t {
  kF32,         // x f32, weight f32
  kF32Bf16,     // x f32, weight bf16
  kBf16F32,     // x bf16, weight f32
  kBf16,        // x bf16, weight bf16
  kBf16Vector,  // all bf16, eight elements a load: rows and weight 16-byte aligned, size % 8 == 0
};

cudaError_t LaunchRmsNorm(RmsNormVariant variant, const RmsNormKernelArgs& args,
                          cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_KERNEL_H_
