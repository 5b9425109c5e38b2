// What the .cu file and quantize_fp8_gemm_cuda.cc both see.
#ifndef KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_KERNEL_H_
#define KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_KERNEL_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

inline constexpr int32_t kQuantizeFp8GemmKernelInputs = 16384;  // at most

// args.x: a row of bf16; args.x_scale is not looked at. REQUIRES: sm_90; one token; scales of
// vectors; x, weight and its rows on 16 bytes; inputs a multiple of 128, above 0; at most 32
// outputs for each multiprocessor.
cudaError_t LaunchQuantizeFp8Gemm(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                                  cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_KERNEL_H_
