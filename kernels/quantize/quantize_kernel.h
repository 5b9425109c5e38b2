// What quantize_kernel.cu and quantize_cuda.cc both see.
#ifndef KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_
#define KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// As QuantizeArgs. Strides in elements.
struct QuantizeKernelArgs {
  const void* x = nullptr;
  uint8_t* codes = nullptr;
  float* scale = nullptr;
  int64_t x_stride = 0;
  int64_t codes_stride = 0;
  int64_t scale_stride = 0;  // of groups: from a group to the next
  int32_t tokens = 0;
  int32_t size = 0;
  bool x_bf16 = false;
  bool power_of_two = false;
  // Rows of x on 16 bytes, of codes on 8, size a multiple of 8.
  bool vectors = false;
};
static_assert(std::is_trivially_copyable_v<QuantizeKernelArgs>);

cudaError_t LaunchQuantizeGroups(const QuantizeKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchQuantizeTokens(const QuantizeKernelArgs& args, cudaStream_t stream);
// `maxima`: kQuantizeMaxima floats.
inline constexpr int kQuantizeMaxima = 512;
cudaError_t LaunchQuantizeTensor(const QuantizeKernelArgs& args, float* maxima,
                                 cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_
