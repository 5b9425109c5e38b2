// The CUDA part of a plan: tiles of queries, their keys split so that every multiprocessor gets
// about as much to read.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/paged_attention/paged_attention.h"
#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {
namespace {

// Keys are split at multiples of this: what one matrix instruction takes.
constexpr int32_t kChunkKeys = 16;
constexpr int32_t kMaxParts = 128;  // of a tile
constexpr int32_t kTileRows[] = {8, 16, kAttentionSmallTileRows, kAttentionLargeTileRows};

// What a launch can run at once, and what a block costs besides its keys.
struct Spread {
  int64_t wave = 0;          // blocks that run at once
  int64_t overhead = 0;      // of a block, in chunks
  int64_t least_chunks = 0;  // of a block
  int64_t waves = 0;         // that splitting aims at, at most
};

// More make the end more even and the partial results larger.
constexpr int64_t kMostWaves = 2;

// For the kernels' blocks of a multiprocessor, see decode::Traits and PagedTiles.
Spread SpreadOf(const PagedAttentionTarget& target, const PagedAttentionShape& shape,
                int32_t tile_rows, bool large_blocks) {
  const int64_t sms = target.multiprocessors;
  const bool wide = shape.head_dim > 128;
  // One wave: the next call's blocks start once all of this one's have, and have room beside them.
  if (large_blocks) return {.wave = sms, .overhead = 24, .least_chunks = 8, .waves = 1};
  if (tile_rows > kAttentionSmallTileRows) {
    return {.wave = sms * (wide ? 1 : 2), .overhead = 12, .least_chunks = 16, .waves = kMostWaves};
  }
  return {.wave = sms * (wide || tile_rows > 8 ? 2 : 3),
          .overhead = 6,
          .least_chunks = 4,
          .waves = kMostWaves};
}

int64_t Chunks(const PagedAttentionWork& tile) {
  return (int64_t{tile.kv_end} + kChunkKeys - 1) / kChunkKeys;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t PartsOf(const PagedAttentionWork& tile, int64_t part_chunks) {
  return std::clamp<int64_t>(CeilDiv(Chunks(tile), part_chunks), 1, kMaxParts);
}

// Partial results per kv head that any split makes: a tile of C chunks in parts of at most P is cut
// only when C > P, into at most 2 C / P parts, and P is at least the total over kMostWaves waves.
int32_t MaxSlots(const Spread& spread, int32_t heads) {
  return static_cast<int32_t>(CeilDiv(2 * spread.wave * kMostWaves, heads));
}

// The least part size from `part` on whose parts need no more than `room` blocks.
int64_t FitParts(const std::vector<PagedAttentionWork>& tiles, int64_t heads, int64_t room,
                 int64_t part, int64_t& blocks) {
  for (;; part += std::max<int64_t>(1, part / 32)) {
    blocks = 0;
    for (const PagedAttentionWork& tile : tiles) blocks += PartsOf(tile, part) * heads;
    if (blocks <= room) return part;
  }
}

// Chunks of a part, the same for all tiles: of the sizes that fill 1, 2, ... waves, the one with
// the least time, as the waves' average block and how far the largest part exceeds it.
int64_t PartChunks(const std::vector<PagedAttentionWork>& tiles, const Spread& spread,
                   int64_t heads) {
  int64_t total = 0;
  for (const PagedAttentionWork& tile : tiles) total += Chunks(tile) * heads;
  const int64_t least = std::max(spread.least_chunks, CeilDiv(total, spread.wave * spread.waves));
  const int64_t uncut = CeilDiv(static_cast<int64_t>(tiles.size()) * heads, spread.wave);
  int64_t best = 0, best_time = 0;
  for (int64_t waves = uncut; waves < uncut + spread.waves; ++waves) {
    const int64_t room = waves * spread.wave;
    int64_t blocks = 0;
    const int64_t part =
        FitParts(tiles, heads, room, std::max(least, CeilDiv(total, room)), blocks);
    const int64_t mean = CeilDiv(total, blocks);
    const int64_t time = CeilDiv(blocks, spread.wave) * (mean + spread.overhead) + part - mean;
    if (best == 0 || time < best_time) {
      best = part;
      best_time = time;
    }
  }
  return best;
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
  const bool large = PagedAttentionLargeBlocks(target, shape, sequences, rows);
  // One wave, of which no tile is left out.
  if (large) return target.multiprocessors / shape.kv_heads;
  const int64_t tiles = sequences * CeilDiv(queries, TileQueries(shape, rows));
  return static_cast<int32_t>(tiles +
                              MaxSlots(SpreadOf(target, shape, rows, large), shape.kv_heads));
}

int32_t Slots(const PagedAttentionTarget& target, const PagedAttentionShape& shape) {
  int32_t slots = 0;
  for (const int32_t rows : kTileRows) {
    slots = std::max(slots, MaxSlots(SpreadOf(target, shape, rows, false), shape.kv_heads));
  }
  return slots;
}

// What a layout holds.
struct Counts {
  int32_t slots, decode_items, prefill_items, hopper_tiles;
};

PagedAttentionPlanLayout Layout(const PagedAttentionShape& shape, const Counts& counts) {
  constexpr int64_t kItem = sizeof(PagedAttentionWork);
  PagedAttentionPlanLayout layout = {.slots = counts.slots,
                                     .decode_items = counts.decode_items,
                                     .prefill_items = counts.prefill_items,
                                     .hopper_tiles = counts.hopper_tiles};
  layout.decode = CeilDiv(int64_t{counts.slots} * shape.kv_heads * 4, kItem) * kItem;
  layout.prefill = layout.decode + counts.decode_items * kItem;
  layout.hopper = layout.prefill + counts.prefill_items * kItem;
  layout.bytes = layout.hopper;
  if (counts.hopper_tiles > 0) {
    layout.bytes += static_cast<int64_t>(sizeof(PagedPrefillWork)) +
                    counts.hopper_tiles * static_cast<int64_t>(sizeof(PagedPrefillTile));
  }
  return layout;
}

int32_t HopperTileTokens(const PagedAttentionShape& shape) {
  return PagedPrefillTileTokens(shape.head_dim, shape.q_heads / shape.kv_heads);
}

// Tiles of the sequences that are not decoded, those that see most keys first.
void AddHopperTiles(PagedAttentionPlan& plan) {
  if (plan.target.compute_capability != 90) return;
  const int32_t tokens = HopperTileTokens(plan.shape);
  std::vector<std::pair<int32_t, PagedPrefillTile>> tiles;  // by the keys they see
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    const int32_t queries = plan.q_start[b + 1] - plan.q_start[b];
    if (queries <= kPagedAttentionDecodeQueries) continue;
    for (int32_t first = 0; first < queries; first += tokens) {
      const int32_t seen = plan.kv_len[b] - std::max(0, queries - first - tokens);
      tiles.push_back({seen, {.sequence = static_cast<int32_t>(b), .first_query = first}});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& tile : tiles) plan.hopper.push_back(tile.second);
}

}  // namespace

int32_t PagedAttentionDecodeTileRows(const PagedAttentionShape& shape, int32_t decode_queries) {
  const int32_t rows = decode_queries * (shape.q_heads / shape.kv_heads);
  for (const int32_t tile_rows : kTileRows) {
    // Wider heads leave no registers for 32 rows.
    if (rows <= tile_rows && (tile_rows <= 16 || shape.head_dim <= 128)) return tile_rows;
  }
  return kAttentionLargeTileRows;
}

bool PagedAttentionLargeBlocks(const PagedAttentionTarget& target, const PagedAttentionShape& shape,
                               int64_t sequences, int32_t tile_rows) {
  return tile_rows == 8 && shape.head_dim <= 128 &&
         sequences * shape.kv_heads * 2 <= target.multiprocessors;
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
  const bool large =
      PagedAttentionLargeBlocks(plan.target, shape, static_cast<int64_t>(plan.kv_len.size()), rows);
  Split(decode, SpreadOf(plan.target, shape, rows, large), shape.kv_heads, plan.decode);
  Split(prefill, SpreadOf(plan.target, shape, kAttentionLargeTileRows, false), shape.kv_heads,
        plan.prefill);
  AddHopperTiles(plan);
  plan.layout = Layout(shape, {.slots = Slots(plan.target, shape),
                               .decode_items = DecodeCapacity(
                                   plan.target, shape, static_cast<int64_t>(plan.kv_len.size()),
                                   plan.decode_queries),
                               .prefill_items = static_cast<int32_t>(plan.prefill.size()),
                               .hopper_tiles = static_cast<int32_t>(plan.hopper.size())});
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
  const auto tiles = [&](int32_t tokens) {
    return static_cast<int32_t>(CeilDiv(max_tokens, tokens) + max_sequences);
  };
  return Layout(shape, {.slots = slots,
                        .decode_items = decode,
                        .prefill_items = tiles(TileQueries(shape, kAttentionLargeTileRows)) + slots,
                        .hopper_tiles = tiles(HopperTileTokens(shape))})
      .bytes;
}

void WritePagedAttentionPlan(const PagedAttentionPlan& plan, char* to) {
  constexpr size_t kItem = sizeof(PagedAttentionWork);
  std::memset(to, 0, static_cast<size_t>(plan.layout.prefill));
  const auto write = [to](const std::vector<PagedAttentionWork>& items, int64_t offset) {
    if (!items.empty()) std::memcpy(to + offset, items.data(), items.size() * kItem);
  };
  write(plan.decode, plan.layout.decode);
  write(plan.prefill, plan.layout.prefill);
  if (plan.hopper.empty()) return;
  int64_t keys = 0;
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    const int32_t queries = plan.q_start[b + 1] - plan.q_start[b];
    if (queries > kPagedAttentionDecodeQueries) keys += plan.kv_len[b];
  }
  const PagedPrefillWork head = {
      .num_tiles = static_cast<int32_t>(plan.hopper.size()),
      .heads_at_once = PagedPrefillHeadsAtOnce(keys, plan.shape.head_dim, plan.shape.kv_heads)};
  std::memcpy(to + plan.layout.hopper, &head, sizeof(head));
  std::memcpy(to + plan.layout.hopper + sizeof(head), plan.hopper.data(),
              plan.hopper.size() * sizeof(PagedPrefillTile));
}

int64_t PagedAttentionCudaPartialBytes(const PagedAttentionTarget& target,
                                       const PagedAttentionShape& shape) {
  int64_t bytes = 0;
  for (const int32_t rows : kTileRows) {
    const int64_t slots = MaxSlots(SpreadOf(target, shape, rows, false), shape.kv_heads);
    bytes = std::max(bytes, slots * shape.kv_heads * rows * PagedAttentionPartialRowBytes(shape));
  }
  return bytes;
}

}  // namespace millrace
