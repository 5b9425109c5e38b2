// What rms_norm_quantize_kernel.cu and rms_norm_quantize_cuda.cc both see.
#ifndef KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_KERNEL_H_
#define KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/quantize/code_args.h"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {

struct RmsNormQuantizeKernelArgs {
  RmsNormKernelArgs norm;  // y may be null
  CodeArgs out;
};
static_assert(std::is_trivially_copyable_v<RmsNormQuantizeKernelArgs>);

// Elements of the longest row that the kernel keeps.
inline constexpr int kRmsNormQuantizeKept = 8192;

// REQUIRES: all bf16, rows and weight on 16 bytes, rows of codes on 8; size a multiple of 8 and at
// most kRmsNormQuantizeKept.
cudaError_t LaunchRmsNormQuantize(RowUnit unit, const RmsNormQuantizeKernelArgs& args,
                                  cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_KERNEL_H_
