// What latent_attention_kernel*.cu and latent_attention_cuda.cc both see.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_H_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/latent_cache/latent_store_args.h"

namespace millrace {

// Heads of tokens: f32 or bf16. Strides in elements.
struct LatentHeads {
  void* data = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

// As LatentAttentionArgs.
struct LatentAttentionKernelArgs {
  LatentHeads q;
  LatentHeads out;
  const float* sinks = nullptr;
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  const int32_t* page_table = nullptr;
  int64_t page_table_stride = 0;
  LatentStoreArgs window_rows;
  LatentStoreArgs compressed_rows;    // of the type of window_rows
  const int32_t* selected = nullptr;  // null: all that a token sees
  int64_t selected_stride = 0;
  int32_t num_selected = 0;
  int32_t ratio = 0;  // 0: no compressed rows
  int32_t sequences = 0;
  int32_t tokens = 0;
  int32_t heads = 0;
  int32_t dim = 0;
  int32_t window = 0;
  float scale = 0;
  bool is_bf16 = false;  // q and out
};
static_assert(std::is_trivially_copyable_v<LatentAttentionKernelArgs>);

// For all dtypes. cudaErrorNotSupported where not even one row of this many channels fits into a
// block's shared memory.
cudaError_t LaunchLatentAttentionPlain(const LatentAttentionKernelArgs& args, cudaStream_t stream);

// On tensor cores. REQUIRES: 512 channels, q and out bf16 with heads on 16 bytes, aligned bf16 or
// FP8 rows. cudaErrorNotSupported where a block's shared memory is too small.
cudaError_t LaunchLatentAttentionTensor(const LatentAttentionKernelArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_KERNEL_H_
