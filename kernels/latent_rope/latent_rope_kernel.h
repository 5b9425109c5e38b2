// What latent_rope_kernel.cu and latent_rope_cuda.cc both see.
#ifndef KERNELS_LATENT_ROPE_LATENT_ROPE_KERNEL_H_
#define KERNELS_LATENT_ROPE_LATENT_ROPE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// Longest head that the kernel with eight elements a load keeps in registers.
inline constexpr int kLatentRopeKept = 1024;

// As LatentRopeArgs. Strides in elements.
struct LatentRopeKernelArgs {
  void* x = nullptr;
  const int32_t* positions = nullptr;
  const float* inv_freq = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
  int32_t tokens = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t pairs = 0;
  bool inverse = false;
  bool norm = false;
  float norm_eps = 0;
};
static_assert(std::is_trivially_copyable_v<LatentRopeKernelArgs>);

enum class LatentRopeVariant : uint8_t {
  kF32,
  kBf16,
  // Eight elements a load: heads on 16 bytes, dim % 8 == 0 and <= kLatentRopeKept, pairs % 4 == 0.
  kBf16Vector,
};

cudaError_t LaunchLatentRope(LatentRopeVariant variant, const LatentRopeKernelArgs& args,
                             cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_LATENT_ROPE_LATENT_ROPE_KERNEL_H_
