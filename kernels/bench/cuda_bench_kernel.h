// What cuda_bench_kernel.cu and cuda_bench.cc both see.
#ifndef KERNELS_BENCH_CUDA_BENCH_KERNEL_H_
#define KERNELS_BENCH_CUDA_BENCH_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace millrace {

// Reads every byte. REQUIRES: bytes is a multiple of 16. `sink` is a device word that depends on
// all of them, in principle.
cudaError_t LaunchReadAll(const void* data, int64_t bytes, uint32_t* sink, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_BENCH_CUDA_BENCH_KERNEL_H_
