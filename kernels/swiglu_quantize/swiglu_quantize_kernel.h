// What swiglu_quantize_kernel.cu and swiglu_quantize_cuda.cc both see.
#ifndef KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_KERNEL_H_
#define KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/quantize/code_args.h"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {

struct SwigluQuantizeKernelArgs {
  SwigluKernelArgs gated;  // y is not looked at
  CodeArgs out;
};
static_assert(std::is_trivially_copyable_v<SwigluQuantizeKernelArgs>);

// Elements of the longest row that the kernel for tokens keeps.
inline constexpr int kSwigluQuantizeKept = 16384;

// REQUIRES: x bf16, its rows on 16 bytes, of codes on 8, block a multiple of 8; of tokens, size at
// most kSwigluQuantizeKept.
cudaError_t LaunchSwigluQuantize(RowUnit unit, const SwigluQuantizeKernelArgs& args,
                                 cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_KERNEL_H_
