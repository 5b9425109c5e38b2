// What swiglu_kernel.cu and swiglu_cuda.cc both see.
#ifndef KERNELS_SWIGLU_SWIGLU_KERNEL_H_
#define KERNELS_SWIGLU_SWIGLU_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As SwigluArgs. Strides in elements.
struct SwigluKernelArgs {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  int32_t tokens = 0;
  int32_t size = 0;   // I
  int32_t block = 0;  // columns of a block, 1 to I
  float limit = 0;    // positive, perhaps infinite
};
static_assert(std::is_trivially_copyable_v<SwigluKernelArgs>);

enum class SwigluVariant : uint8_t {
  kF32,
  kBf16,
  kBf16Vector,  // eight elements a load: rows 16-byte aligned, block % 8 == 0
};

cudaError_t LaunchSwiglu(SwigluVariant variant, const SwigluKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_KERNEL_H_
