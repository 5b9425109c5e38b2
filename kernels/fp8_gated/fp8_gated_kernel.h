// What the .cu files and fp8_gated_cuda.cc both see.
#ifndef KERNELS_FP8_GATED_FP8_GATED_KERNEL_H_
#define KERNELS_FP8_GATED_FP8_GATED_KERNEL_H_

#include <cuda_runtime.h>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

// args.outputs: rows of the weight; args.y: bf16, half as many columns. REQUIRES: sm_89; x, weight
// and their rows on 16 bytes; up to kFp8GemmSkinnyTokens tokens; inputs a multiple of 128, above 0;
// outputs a multiple of 32.
cudaError_t LaunchFp8Gated(const Fp8GemmKernelArgs& args, cudaStream_t stream);

// The same on sm_90.
cudaError_t LaunchFp8GatedRing(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                               cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_KERNEL_H_
