// The work list of prefill on Hopper, as both compilers see it.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_PREFILL_WORK_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_PREFILL_WORK_H_

#include <cstdint>

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

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_PREFILL_WORK_H_
