// The producer warp of prefill for Hopper: takes tiles from the list and fills shared memory.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LOAD_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LOAD_CUH_

#include <cuda.h>

#include <cstdint>

#include "kernels/paged_attention/paged_attention_kernel_prefill.h"
#include "kernels/paged_attention/paged_attention_kernel_prefill_traits.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"

namespace millrace::prefill {

// A tile as its producer sees it.
struct Fetch {
  Tile tile;
  int32_t kv_len = 0;
  const int32_t* pages = nullptr;  // of the sequence
};

// The next tile of the list; blocks is 0 when none is left. All lanes of a warp.
template <typename T>
__device__ __forceinline__ Fetch NextTile(const PagedPrefillArgs& args) {
  const uint32_t total = static_cast<uint32_t>(args.work->num_tiles * args.kv_heads);
  uint32_t ticket = 0;
  if (threadIdx.x % 32 == 0) ticket = atomicAdd(&args.work->next, 1);
  ticket = __shfl_sync(0xffffffffu, ticket, 0);
  Fetch f;
  if (ticket >= total) {
    // Every block draws exactly one ticket too many; the last of them winds the counter back.
    if (threadIdx.x % 32 == 0 && ticket == total + gridDim.x - 1) args.work->next = 0;
    return f;
  }
  // Some heads of every tile, then the next heads.
  const uint32_t at_once = static_cast<uint32_t>(args.work->heads_at_once);
  const uint32_t section = ticket / (args.work->num_tiles * at_once);
  const uint32_t heads = min(at_once, args.kv_heads - section * at_once);
  const uint32_t place_in_section = ticket - section * args.work->num_tiles * at_once;
  const auto* tiles = reinterpret_cast<const PagedPrefillTile*>(args.work + 1);
  const PagedPrefillTile place = tiles[place_in_section / heads];
  const int begin = args.q_start[place.sequence];
  const int queries = args.q_start[place.sequence + 1] - begin;
  f.kv_len = args.kv_len[place.sequence];
  f.pages = args.page_table + place.sequence * args.page_table_stride;
  f.tile.kv_head = static_cast<int32_t>(section * at_once + place_in_section % heads);
  f.tile.first_row = begin + place.first_query;
  f.tile.tokens = min(T::kRows / (args.q_heads / args.kv_heads), queries - place.first_query);
  f.tile.position = f.kv_len - queries + place.first_query;
  f.tile.blocks = (f.tile.position + f.tile.tokens - 1) / T::kKeys + 1;
  return f;
}

// One box of a block of keys or values, a lane. The producer has about a thousand cycles a block,
// so nothing here divides: pages and boxes are powers of two.
template <typename T>
struct Box {
  int rows;                   // of the box
  int page_shift, page_mask;  // of a key: its page, and its row there
  int row, slab;              // of the box within the block
  int offset;                 // of the box within the block, in bytes
  bool active;

  __device__ explicit Box(int page_tokens) {
    const int lane = threadIdx.x % 32;
    rows = min(page_tokens, T::kMaxBoxRows);
    page_shift = __ffs(page_tokens) - 1;
    page_mask = page_tokens - 1;
    row = lane / T::kSlabs * rows;
    slab = lane % T::kSlabs;
    offset = slab * T::kSlabBytes + row * T::kSlabRowBytes;
    active = row < T::kKeys;
  }

  // The page of the box in block j, or -1 where the sequence has ended: the copy engine then fills
  // in zeros.
  __device__ int Page(const Fetch& f, int j) const {
    const int key = j * T::kKeys + row;
    return active && j >= 0 && key < f.kv_len ? f.pages[key >> page_shift] : -1;
  }

  __device__ void Load(uint8_t* block, const CUtensorMap& map, uint64_t* barrier, int j, int page,
                       int kv_head) const {
    if (!active) return;
    const int key = j * T::kKeys + row;
    LoadBox4(block + offset, map, barrier, make_int4(slab * 64, key & page_mask, kv_head, page));
  }
};

// Zeros the rows of a block of values from `begin` to `end`. All lanes of a warp.
template <typename T>
__device__ void ClearRows(uint8_t* block, int begin, int end) {
  constexpr int kChunks = T::kSlabRowBytes / 16;
  const int chunks = (end - begin) * kChunks;
  for (int slab = 0; slab < T::kSlabs; ++slab) {
    uint8_t* rows = block + slab * T::kSlabBytes + begin * T::kSlabRowBytes;
    for (int i = threadIdx.x % 32; i < chunks; i += 32) {
      *reinterpret_cast<uint4*>(rows + i * 16) = make_uint4(0, 0, 0, 0);
    }
  }
}

// Hands a tile's description and queries to the consumers. All lanes of a warp.
template <typename T>
__device__ void HandOver(const PagedPrefillArgs& args, const Maps& maps, typename T::Smem& smem,
                         const Tile& tile, Cursor<T::kQBuffers>& queries) {
  const int buffer = queries.index;
  Wait(&smem.q_empty[buffer], queries.parity ^ 1);
  if (threadIdx.x % 32 == 0) {
    smem.tile[buffer] = tile;
    if (tile.blocks == 0) {
      Arrive(&smem.q_full[buffer]);
    } else {
      const int group = args.q_heads / args.kv_heads;
      const int rows = T::kRows / group * group;
      ArriveExpect(&smem.q_full[buffer], T::kSlabs * T::kSlabRowBytes * rows);
      for (int slab = 0; slab < T::kSlabs; ++slab) {
        LoadBox3(smem.q[buffer] + slab * T::kQSlabBytes, maps.q, &smem.q_full[buffer], slab * 64,
                 tile.kv_head * group, tile.first_row);
      }
    }
  }
  __syncwarp();
  queries.Advance();
}

template <typename T>
struct Producer {
  const PagedPrefillArgs& args;
  const Maps& maps;
  typename T::Smem& smem;
  const Box<T> box;
  Cursor<T::kStages> ring;
  Cursor<T::kQBuffers> queries;
  uint32_t patch_parity = 0;

  __device__ void LoadBlock(const CUtensorMap& map, const Fetch& f, int j, int page) {
    const bool leader = threadIdx.x % 32 == 0;
    uint64_t* full = &smem.full[ring.index];
    Wait(&smem.empty[ring.index], ring.parity ^ 1);
    if (leader) ArriveExpect(full, T::kBlockBytes);
    __syncwarp();
    box.Load(smem.ring[ring.index], map, full, j, page, f.tile.kv_head);
    ring.Advance();
  }

  // Values: what lies past the sequence's end in its last page may be NaN, and zero weights do not
  // remove a NaN. Such a block first lands, is cleared there, and only then counts as full.
  __device__ void LoadValues(const Fetch& f, int j, int page) {
    const int end = f.kv_len - j * T::kKeys;
    if (end >= T::kKeys || (end & (box.rows - 1)) == 0) return LoadBlock(maps.v, f, j, page);
    const bool leader = threadIdx.x % 32 == 0;
    uint8_t* block = smem.ring[ring.index];
    Wait(&smem.empty[ring.index], ring.parity ^ 1);
    if (leader) ArriveExpect(&smem.patch, T::kBlockBytes);
    __syncwarp();
    box.Load(block, maps.v, &smem.patch, j, page, f.tile.kv_head);
    Wait(&smem.patch, patch_parity);
    patch_parity ^= 1;
    ClearRows<T>(block, end, (end + box.rows - 1) & -box.rows);
    FenceSharedForAsync();
    __syncwarp();
    if (leader) Arrive(&smem.full[ring.index]);
    ring.Advance();
  }

  // In the order in which the consumers use them: keys of a block before the values of the block
  // ahead of it.
  __device__ void Run() {
    Fetch f = NextTile<T>(args);
    while (f.tile.blocks > 0) {
      HandOver<T>(args, maps, smem, f.tile, queries);
      int page = box.Page(f, f.tile.blocks - 1);
      const Fetch next = NextTile<T>(args);
      int page_ahead = -1;
      for (int j = f.tile.blocks - 1; j >= 0; --j) {
        const int page_next = box.Page(f, j - 1);
        LoadBlock(maps.k, f, j, page);
        if (j < f.tile.blocks - 1) LoadValues(f, j + 1, page_ahead);
        page_ahead = page;
        page = page_next;
      }
      LoadValues(f, 0, page_ahead);
      f = next;
    }
    HandOver<T>(args, maps, smem, f.tile, queries);
  }
};

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_LOAD_CUH_
