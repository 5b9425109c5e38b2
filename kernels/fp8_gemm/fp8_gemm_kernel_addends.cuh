// What is added to a scaled sum: of its output, and of its token and output; and the store of one.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_ADDENDS_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_ADDENDS_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

// The same for a whole call.
__host__ __device__ __forceinline__ bool HasAddends(const Fp8GemmKernelArgs& args) {
  return args.bias.data != nullptr || args.residual.data != nullptr;
}

// Volatile: such loads stay in the epilogue, or they would take registers through the whole loop.
__device__ __forceinline__ float LoadAddend(const Fp8GemmAddend& from, int64_t at) {
  if (!from.bf16) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];"
                 : "=f"(value)
                 : "l"(static_cast<const float*>(from.data) + at));
    return value;
  }
  uint16_t bits;
  asm volatile("ld.global.u16 %0, [%1];"
               : "=h"(bits)
               : "l"(static_cast<const uint16_t*>(from.data) + at));
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

// (sum + bias) + residual. REQUIRES: token and output are of y, and the kernel waited for the one
// before it.
__device__ __forceinline__ float WithAddends(const Fp8GemmKernelArgs& args, int token, int output,
                                             float sum) {
  if (args.bias.data != nullptr) sum += LoadAddend(args.bias, output);
  if (args.residual.data != nullptr) {
    sum += LoadAddend(args.residual, token * args.residual.stride + output);
  }
  return sum;
}

// y of a token and an output, from all that it is the sum of.
__device__ __forceinline__ void StoreElement(const Fp8GemmKernelArgs& args, int token, int output,
                                             float sum) {
  const int64_t at = token * args.y_stride + output;
  if (args.y_bf16) {
    static_cast<__nv_bfloat16*>(args.y)[at] = __float2bfloat16(sum);
  } else {
    static_cast<float*>(args.y)[at] = sum;
  }
}

}  // namespace millrace

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_ADDENDS_CUH_
