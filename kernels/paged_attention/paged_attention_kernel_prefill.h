// Prefill over a paged cache on Hopper: what the host code and the kernel both see.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "kernels/paged_attention/paged_attention_prefill_work.h"

namespace millrace {

// As PagedAttentionArgs, all bf16, or with a cache of codes (E4M3) and its scales. Strides in
// elements; those of q, out and the caches are multiples of 16 bytes, as are their addresses. The
// rows of a page lie densely.
struct PagedPrefillArgs {
  const void* q = nullptr;
  const void* k_cache = nullptr;
  const void* v_cache = nullptr;
  void* out = nullptr;
  const float* k_scale = nullptr;  // of a cache of codes: [kv_heads]
  const float* v_scale = nullptr;
  const int32_t* page_table = nullptr;
  const int32_t* q_start = nullptr;
  const int32_t* kv_len = nullptr;
  PagedPrefillWork* work = nullptr;
  int64_t q_token_stride = 0, q_head_stride = 0;
  int64_t out_token_stride = 0, out_head_stride = 0;
  int64_t k_page_stride = 0, k_head_stride = 0;
  int64_t v_page_stride = 0, v_head_stride = 0;
  int64_t page_table_stride = 0;
  int32_t tokens = 0;  // rows of q and out
  int32_t pages = 0;   // of the cache
  int32_t page_tokens = 0;
  int32_t q_heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  float scale = 0;  // above 0
};
static_assert(std::is_trivially_copyable_v<PagedPrefillArgs>);

// Whether the kernel takes these shapes: the head sizes of the table in the .cu file, pages of 16,
// 32, 64 or 128 tokens.
constexpr bool PagedPrefillTakes(int32_t head_dim, int32_t page_tokens, int32_t group) {
  return (head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256) &&
         (page_tokens == 16 || page_tokens == 32 || page_tokens == 64 || page_tokens == 128) &&
         group >= 1 && group <= 64;
}

// Needs compute capability 9.0. Tiles are taken in the order of the list: put those that see most
// keys first.
cudaError_t LaunchPagedPrefill(const PagedPrefillArgs& args, cudaStream_t stream);
// On a cache of codes.
cudaError_t LaunchPagedPrefillFp8(const PagedPrefillArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_
