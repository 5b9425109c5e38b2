// What latent_append_kernel.cu and latent_append_cuda.cc both see.
#ifndef KERNELS_LATENT_APPEND_LATENT_APPEND_KERNEL_H_
#define KERNELS_LATENT_APPEND_LATENT_APPEND_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/latent_cache/latent_store_args.h"

namespace millrace {

struct LatentAppendKernelArgs {
  const void* rows = nullptr;  // f32 or bf16
  const int64_t* slots = nullptr;
  LatentStoreArgs store;
  int64_t row_stride = 0;  // in elements
  int32_t tokens = 0;
  bool rows_bf16 = false;
  bool rows_aligned = false;  // every row starts on 16 bytes
};
static_assert(std::is_trivially_copyable_v<LatentAppendKernelArgs>);

cudaError_t LaunchLatentAppend(const LatentAppendKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_LATENT_APPEND_LATENT_APPEND_KERNEL_H_
