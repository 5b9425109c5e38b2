// Prefill over a paged cache on Hopper: what the host code and the kernel both see.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// A tile: PagedPrefillTileTokens() queries of one sequence from `first_query` (0 = its first new
// token), fewer at the sequence's end, for every kv head.
struct PagedPrefillTile {
  int32_t sequence = 0;
  int32_t first_query = 0;
};

// The head of the work list in device memory; the tiles follow it.
struct PagedPrefillWork {
  int32_t num_tiles = 0;
  uint32_t next = 0;          // uploaded as 0; the kernel leaves it 0
  int32_t heads_at_once = 1;  // PagedPrefillHeadsAtOnce()
  int32_t padding = 0;
};
static_assert(sizeof(PagedPrefillWork) % sizeof(PagedPrefillTile) == 0);

// As PagedAttentionArgs, all bf16. Strides in elements; those of q, out and the caches are multiples
// of 8 and their addresses of 16 bytes. The rows of a page lie densely.
struct PagedPrefillArgs {
  const void* q = nullptr;
  const void* k_cache = nullptr;
  const void* v_cache = nullptr;
  void* out = nullptr;
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

// Tokens of a tile where `group` query heads share a kv head: its rows hold the whole group's.
constexpr int32_t PagedPrefillTileTokens(int32_t head_dim, int32_t group) {
  return (head_dim >= 128 ? 128 : 192) / group;
}

// The kv heads that all tiles are worked off for before the next ones are begun: as many as have
// their keys and values in L2 together (24 MiB, half of an H200's, hold what is in use at a time).
constexpr int32_t PagedPrefillHeadsAtOnce(int64_t total_kv_len, int32_t head_dim,
                                          int32_t kv_heads) {
  constexpr int64_t kCacheBytes = 24 << 20;
  const int64_t head_bytes = total_kv_len * head_dim * 2 * 2;
  const int64_t heads = head_bytes == 0 ? kv_heads : kCacheBytes / head_bytes;
  return heads < 1 ? 1 : heads > kv_heads ? kv_heads : static_cast<int32_t>(heads);
}

// Needs compute capability 9.0. Tiles are taken in the order of the list: put those that see most
// keys first.
cudaError_t LaunchPagedPrefill(const PagedPrefillArgs& args, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_H_
