// The CUDA part of a plan: tiles of queries, their keys split so that every multiprocessor gets
// about as much to read.
#include <algorithm>
#include <cstring>

#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {
namespace {

// Keys are split at multiples of this: what one matrix instruction takes.
constexpr int32_t kChunkKeys = 16;
constexpr int32_t kMaxParts = 128;  // joined one after the other

// How many blocks the keys of a launch may be spread over.
struct Spread {
  int64_t wave = 0;          // blocks that run at once
  int64_t waves = 0;         // waves of a launch that has plenty of work
  int64_t chunks = 0;        // of a block, from which on more blocks than a wave pay
  int64_t least_chunks = 0;  // of a block
};

Spread SpreadOf(const PagedAttentionTarget& target, const PagedAttentionShape& shape,
                int32_t tile_rows) {
  // Blocks of a multiprocessor, by registers for small tiles and shared memory for large ones.
  const bool small = tile_rows <= kAttentionSmallTileRows;
  const bool wide = shape.head_dim > 128;
  const int64_t blocks = small ? (wide ? 2 : 3) : (wide ? 1 : 2);
  return {.wave = target.multiprocessors * blocks,
          .waves = small ? 4 : 2,
          .chunks = small ? 32 : 64,
          .least_chunks = small ? 4 : 16};
}

int64_t Chunks(const PagedAttentionWork& tile) {
  return (int64_t{tile.kv_end} + kChunkKeys - 1) / kChunkKeys;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PartsOf(const PagedAttentionWork& tile, int64_t part_chunks) {
  return std::clamp<int64_t>(CeilDiv(Chunks(tile), part_chunks), 1, kMaxParts);
}

// Partial results per kv head that any split makes: a tile of C chunks in parts of at most P is cut
// only when C > P, into at most 2 C / P parts, and P is at least the total over wave * waves
// blocks.
int32_t MaxSlots(const Spread& spread, int32_t heads) {
  return static_cast<int32_t>(CeilDiv(2 * spread.wave * spread.waves, heads));
}

// Chunks of a part, the same for all tiles.
int64_t PartChunks(const std::vector<PagedAttentionWork>& tiles, const Spread& spread,
                   int64_t heads) {
  int64_t total = 0;
  for (const PagedAttentionWork& tile : tiles) total += Chunks(tile) * heads;
  const int64_t full = CeilDiv(total, spread.wave * spread.waves);
  if (full >= spread.chunks) return full;
  if (total >= spread.wave * spread.chunks) return spread.chunks;
  // One wave. Rounding up may need a few blocks more than there is room for: then larger parts.
  int64_t part = std::max(spread.least_chunks, CeilDiv(total, spread.wave));
  const int64_t room = std::max(spread.wave, static_cast<int64_t>(tiles.size()) * heads);
  for (;; part += std::max<int64_t>(1, part / 16)) {
    int64_t blocks = 0;
    for (const PagedAttentionWork& tile : tiles) blocks += PartsOf(tile, part) * heads;
    if (blocks <= room) return part;
  }
}

// Appends the tiles' parts to `out`, longest first.
void Split(std::vector<PagedAttentionWork>& tiles, const Spread& spread, int64_t heads,
           std::vector<PagedAttentionWork>& out) {
  if (tiles.empty()) return;
  const int64_t part_chunks = PartChunks(tiles, spread, heads);
  int32_t slots = 0;
  for (PagedAttentionWork& tile : tiles) {
    const int64_t chunks = Chunks(tile);
    const int64_t parts = PartsOf(tile, part_chunks);
    const int32_t keys = tile.kv_end;
    tile.parts = static_cast<uint8_t>(parts);
    tile.slot = parts > 1 ? slots : 0;
    if (parts > 1) slots += static_cast<int32_t>(parts);
    for (int64_t p = 0; p < parts; ++p) {
      tile.part = static_cast<uint8_t>(p);
      tile.kv_begin = static_cast<int32_t>(chunks * p / parts) * kChunkKeys;
      tile.kv_end = std::min(keys, static_cast<int32_t>(chunks * (p + 1) / parts) * kChunkKeys);
      out.push_back(tile);
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const PagedAttentionWork& a, const PagedAttentionWork& b) {
                     return a.kv_end - a.kv_begin > b.kv_end - b.kv_begin;
                   });
}

int32_t TileQueries(const PagedAttentionShape& shape, int32_t tile_rows) {
  return std::max(1, tile_rows / (shape.q_heads / shape.kv_heads));
}

void AddTiles(const PagedAttentionPlan& plan, size_t b, int32_t tile_queries,
              std::vector<PagedAttentionWork>& tiles) {
  const int32_t first = plan.q_start[b], queries = plan.q_start[b + 1] - first;
  const int32_t settled = plan.kv_len[b] - queries;
  for (int32_t begin = 0; begin < queries; begin += tile_queries) {
    const int32_t n = std::min(tile_queries, queries - begin);
    tiles.push_back({.sequence = static_cast<int32_t>(b),
                     .token = first + begin,
                     .queries = static_cast<uint16_t>(n),
                     .visible = settled + begin + 1,
                     .settled = settled,
                     .kv_end = settled + begin + n});
  }
}

// Decode items of at most `sequences`, each with at most `queries` queries.
int32_t DecodeCapacity(const PagedAttentionTarget& target, const PagedAttentionShape& shape,
                       int64_t sequences, int32_t queries) {
  if (queries == 0) return 0;
  const int32_t rows = PagedAttentionDecodeTileRows(shape, queries);
  const int64_t tiles = sequences * CeilDiv(queries, TileQueries(shape, rows));
  return static_cast<int32_t>(tiles + MaxSlots(SpreadOf(target, shape, rows), shape.kv_heads));
}

int32_t Slots(const PagedAttentionTarget& target, const PagedAttentionShape& shape) {
  return std::max(MaxSlots(SpreadOf(target, shape, kAttentionSmallTileRows), shape.kv_heads),
                  MaxSlots(SpreadOf(target, shape, kAttentionLargeTileRows), shape.kv_heads));
}

PagedAttentionPlanLayout Layout(const PagedAttentionShape& shape, int32_t slots,
                                int32_t decode_items, int32_t prefill_items) {
  constexpr int64_t kItem = sizeof(PagedAttentionWork);
  PagedAttentionPlanLayout layout = {
      .slots = slots, .decode_items = decode_items, .prefill_items = prefill_items};
  layout.decode = CeilDiv(int64_t{slots} * shape.kv_heads * 4, kItem) * kItem;
  layout.prefill = layout.decode + decode_items * kItem;
  layout.bytes = layout.prefill + prefill_items * kItem;
  return layout;
}

}  // namespace

int32_t PagedAttentionDecodeTileRows(const PagedAttentionShape& shape, int32_t decode_queries) {
  const int32_t rows = decode_queries * (shape.q_heads / shape.kv_heads);
  if (rows <= 8) return 8;
  return rows <= kAttentionSmallTileRows ? kAttentionSmallTileRows : kAttentionLargeTileRows;
}

void PlanPagedAttentionCuda(PagedAttentionPlan& plan) {
  const PagedAttentionShape& shape = plan.shape;
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    const int32_t queries = plan.q_start[b + 1] - plan.q_start[b];
    if (queries <= kPagedAttentionDecodeQueries) {
      plan.decode_queries = std::max(plan.decode_queries, queries);
    }
  }
  const int32_t rows = PagedAttentionDecodeTileRows(shape, plan.decode_queries);
  std::vector<PagedAttentionWork> decode, prefill;
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    const bool few = plan.q_start[b + 1] - plan.q_start[b] <= kPagedAttentionDecodeQueries;
    AddTiles(plan, b, TileQueries(shape, few ? rows : kAttentionLargeTileRows),
             few ? decode : prefill);
  }
  Split(decode, SpreadOf(plan.target, shape, rows), shape.kv_heads, plan.decode);
  Split(prefill, SpreadOf(plan.target, shape, kAttentionLargeTileRows), shape.kv_heads,
        plan.prefill);
  plan.layout = Layout(shape, Slots(plan.target, shape),
                       DecodeCapacity(plan.target, shape, static_cast<int64_t>(plan.kv_len.size()),
                                      plan.decode_queries),
                       static_cast<int32_t>(plan.prefill.size()));
}

int64_t PagedAttentionPlanBytes(const PagedAttentionTarget& target,
                                const PagedAttentionShape& shape, int64_t max_sequences,
                                int64_t max_tokens) {
  if (target.device == DeviceType::kCpu) return 0;
  int32_t decode = 0;
  for (int32_t queries = 1; queries <= kPagedAttentionDecodeQueries; ++queries) {
    const int64_t sequences = std::min(max_sequences, max_tokens);
    decode = std::max(decode, DecodeCapacity(target, shape, sequences, queries));
  }
  const int32_t slots = Slots(target, shape);
  const int64_t tiles =
      CeilDiv(max_tokens, TileQueries(shape, kAttentionLargeTileRows)) + max_sequences;
  return Layout(shape, slots, decode, static_cast<int32_t>(tiles) + slots).bytes;
}

void WritePagedAttentionPlan(const PagedAttentionPlan& plan, char* to) {
  constexpr size_t kItem = sizeof(PagedAttentionWork);
  std::memset(to, 0, static_cast<size_t>(plan.layout.prefill));
  const auto write = [to](const std::vector<PagedAttentionWork>& items, int64_t offset) {
    if (!items.empty()) std::memcpy(to + offset, items.data(), items.size() * kItem);
  };
  write(plan.decode, plan.layout.decode);
  write(plan.prefill, plan.layout.prefill);
}

int64_t PagedAttentionCudaPartialBytes(const PagedAttentionTarget& target,
                                       const PagedAttentionShape& shape) {
  int64_t bytes = 0;
  for (const int32_t rows : {kAttentionSmallTileRows, kAttentionLargeTileRows}) {
    const int64_t slots = MaxSlots(SpreadOf(target, shape, rows), shape.kv_heads);
    bytes = std::max(bytes, slots * shape.kv_heads * rows * PagedAttentionPartialRowBytes(shape));
  }
  return bytes;
}

}  // namespace millrace
