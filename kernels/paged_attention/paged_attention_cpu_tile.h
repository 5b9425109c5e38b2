// What the CPU row hands to the code of one instruction set.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CPU_TILE_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CPU_TILE_H_

#include <cstdint>

namespace millrace {

// The keys or the values of one kv head. Strides in elements.
struct AttentionPages {
  const void* head = nullptr;
  int64_t page_stride = 0;
  int64_t token_stride = 0;
};

// The query or the output rows of one tile: row t * group + g is query t of the tile, head g.
struct AttentionRows {
  void* first = nullptr;
  int64_t token_stride = 0;
  int64_t head_stride = 0;
};

// A plan's item for one kv head. Sizes are those of PagedAttentionShape and PagedAttentionItem.
struct AttentionTile {
  AttentionRows q;
  AttentionRows out;
  AttentionPages k;
  AttentionPages v;
  const int32_t* pages = nullptr;  // of the sequence
  int32_t page_tokens = 0;
  int32_t head_dim = 0;
  int32_t queries = 0;
  int32_t group = 0;
  int32_t visible = 0;  // keys that the tile's first query sees; each later one sees one more
  int32_t kv_begin = 0;
  int32_t kv_end = 0;
  float scale = 0;           // of scores, the keys' own included
  float v_scale = 1;         // of the values in the cache
  float* partial = nullptr;  // rows of [accumulator, maximum, sum] instead of `out`, or null
  float* scratch = nullptr;  // AttentionScratchFloats(head_dim)
};

using AttendFn = void (*)(const AttentionTile&);

struct AttentionKernels {
  AttendFn attend[2][3];  // [q is bf16][cache is f32, bf16, E4M3]
  int lanes;              // head_dim must be a multiple
};

extern const AttentionKernels kAttentionScalar;
extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

// Queries, accumulators, widened keys, widened values (64 rows each), scores, and three numbers a
// row.
constexpr int64_t AttentionScratchFloats(int64_t head_dim) {
  return 4 * 64 * head_dim + 64 * 64 + 3 * 64;
}

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_CPU_TILE_H_
