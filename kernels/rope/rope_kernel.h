// What rope_kernel.cu and rope_cuda.cc both see.
#ifndef KERNELS_ROPE_ROPE_KERNEL_H_
#define KERNELS_ROPE_ROPE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As RopeArgs. Strides in elements.
struct RopeKernelArgs {
  void* x = nullptr;
  const int32_t* positions = nullptr;
  const float* inv_freq = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int32_t tokens = 0;
  int32_t heads = 0;
  int32_t dim = 0;
};
static_assert(std::is_trivially_copyable_v<RopeKernelArgs>);

enum class RopeVariant : uint8_t {
  kF32,
  kBf16,
  kBf16Vector,  // eight elements a load: heads 16-byte aligned, dim % 16 == 0
};

cudaError_t LaunchRope(RopeVariant variant, const RopeKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_ROPE_ROPE_KERNEL_H_
