// What quantize_kernel.cu and quantize_cuda.cc both see.
#ifndef KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_
#define KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/quantize/code_args.h"

namespace millrace {

// As QuantizeArgs. Strides in elements.
struct QuantizeKernelArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  int32_t tokens = 0;
  int32_t size = 0;
  CodeArgs out;
  bool x_bf16 = false;
  bool aligned = false;     // rows of x on 16 bytes, of codes on 8, both sizes multiples of 8
  bool transposed = false;  // of the last three
};
static_assert(std::is_trivially_copyable_v<QuantizeKernelArgs>);

cudaError_t LaunchQuantizeGroups(const QuantizeKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchQuantizeTokens(const QuantizeKernelArgs& args, cudaStream_t stream);
// Groups of 128 tokens of a column; transposed.
cudaError_t LaunchQuantizeTurnedGroups(const QuantizeKernelArgs& args, cudaStream_t stream);
cudaError_t LaunchQuantizeChannels(const QuantizeKernelArgs& args, cudaStream_t stream);
// `maxima`: kQuantizeMaxima floats; not looked at where the scale is given.
inline constexpr int kQuantizeMaxima = 1024;
cudaError_t LaunchQuantizeTensor(const QuantizeKernelArgs& args, float* maxima,
                                 cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_KERNEL_H_
