// What fp8_gate_up_kernel.cu and fp8_gate_up_cuda.cc both see.
#ifndef KERNELS_FP8_GATE_UP_FP8_GATE_UP_KERNEL_H_
#define KERNELS_FP8_GATE_UP_FP8_GATE_UP_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"

namespace millrace {

// REQUIRES: what LaunchFp8GemmTiles() does; outputs a multiple of 256, rows of codes on 16 bytes,
// E4M3. args.y is not looked at.
cudaError_t LaunchFp8GateUp(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                            cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_FP8_GATE_UP_FP8_GATE_UP_KERNEL_H_
