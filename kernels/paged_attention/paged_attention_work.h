// The device's part of a plan, as both compilers see it.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_WORK_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_WORK_H_

#include <cstdint>

namespace millrace {

// One tile of queries against one range of keys, for every kv head. All zero: nothing to do.
struct alignas(16) PagedAttentionWork {
  int32_t sequence = 0;  // row of the page table
  int32_t token = 0;     // row of q and out of the tile's first query
  uint16_t queries = 0;
  uint8_t part = 0;     // of the tile's keys
  uint8_t parts = 0;    // 1: writes the output itself; 0: nothing to do
  int32_t visible = 0;  // keys that the first query sees; each query after it sees one more
  int32_t settled = 0;  // keys of earlier steps, which no kernel of this step writes
  int32_t kv_begin = 0, kv_end = 0;  // keys of this part
  int32_t slot = 0;  // of the tile's part 0 among the partial results; later parts follow
};
static_assert(sizeof(PagedAttentionWork) == 32);

// Where the parts of plan_data begin, in bytes. The layout up to the decode work depends on nothing
// but shape, target, number of sequences and decode_queries: a captured graph relies on it.
struct PagedAttentionPlanLayout {
  int32_t slots = 0;         // partial results, per kv head
  int32_t decode_items = 0;  // capacity; unused ones are zero
  int32_t prefill_items = 0;
  int32_t hopper_tiles = 0;
  int64_t arrivals = 0;  // [slots, kv_heads] i32, zero between launches: parts of a tile that are
                         // done, counted at the slot of its part 0
  int64_t decode = 0;    // [decode_items] PagedAttentionWork
  int64_t prefill = 0;   // [prefill_items] PagedAttentionWork
  int64_t hopper = 0;    // PagedPrefillWork and its PagedPrefillTile, if it has tiles
  int64_t bytes = 0;
};

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_WORK_H_
