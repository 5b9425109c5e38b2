// Causal prefill for Hopper.
//
// Grid: one block an SM; each takes tiles from a shared counter until none is left. A tile is 128
// query rows (tokens x the query heads of one kv head) against the keys they see, in blocks of
// kKeys, last keys first, so that only the first blocks need a mask.
//   warp 0          producer: fetches the next tile and its page numbers, and keeps the ring of K
//                   and V blocks in shared memory full (copy engine, one box a page and 64 columns)
//   warpgroups 1, 2 64 rows each: S = Q K' and O += P V by wgmma, P straight from registers
// A warpgroup issues the scores of block j + 1 together with the values of block j, then does the
// softmax of j + 1 while the latter run; named barriers make the two warpgroups take turns in
// issuing, so that one's softmax runs under the other's products. Bound by the tensor cores.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/paged_attention/paged_attention_kernel_prefill.h"
#include "kernels/ptx/exp2.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"
#include "kernels/ptx/wgmma_bf16.cuh"

namespace millrace::prefill {

struct Maps {
  CUtensorMap q;  // (column, head, token)
  CUtensorMap k;  // (column, token of the page, kv head, page)
  CUtensorMap v;
};

// What the consumers need to know of a tile.
struct Tile {
  int32_t blocks = 0;      // of keys; 0: no tile is left
  int32_t position = 0;    // of the first token in its sequence
  int32_t first_row = 0;   // of q and out
  int32_t tokens = 0;      // of the tile
  int32_t kv_head = 0;
};

template <int kHeadDimension, int kBlockKeys, int kRingStages, int kQueryBuffers, int kWarpgroups>
struct Traits {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kKeys = kBlockKeys;         // keys of a block
  static constexpr int kStages = kRingStages;      // blocks of the ring, K and V in turn
  static constexpr int kQBuffers = kQueryBuffers;  // tiles of queries held
  static constexpr int kConsumers = kWarpgroups;   // warpgroups of 64 rows each
  static constexpr int kRows = 64 * kConsumers;
  // Of 64 Ki registers, by role; the producer's are what the consumers leave.
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 232 : 160;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 40 : 32;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kSlabs = (kHeadDim + 63) / 64;  // 64 columns, the width of a swizzled row
  static constexpr int kSlabRowBytes = 128;
  static constexpr int kQSlabBytes = kRows * kSlabRowBytes;
  static constexpr int kSlabBytes = kKeys * kSlabRowBytes;
  static constexpr int kBlockBytes = kSlabs * kSlabBytes;
  // Taking turns pays while a warpgroup's softmax is long beside its products.
  static constexpr bool kTurns = kHeadDim <= 128;

  struct Smem {
    alignas(1024) uint8_t q[kQBuffers][kSlabs * kQSlabBytes];
    alignas(1024) uint8_t ring[kStages][kBlockBytes];
    uint64_t q_full[kQBuffers], q_empty[kQBuffers];
    uint64_t full[kStages], empty[kStages];
    uint64_t patch;  // for a block of values whose end must be cleared before it is full
    Tile tile[kQBuffers];
  };
  static_assert(sizeof(Smem) + 1024 <= 227 * 1024, "more than a block's shared memory");
};

// A place in a ring of kCount buffers and the parity of its current use.
template <int kCount>
struct Cursor {
  int index = 0;
  uint32_t parity = 0;
  __device__ void Advance() {
    if (++index == kCount) {
      index = 0;
      parity ^= 1;
    }
  }
};

// ---- Producer -------------------------------------------------------------------------------

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

// Rows of a box: what divides both the block and the page.
template <typename T>
__host__ __device__ constexpr int BoxRows(int page_tokens) {
  int rows = page_tokens;
  while (T::kKeys % rows != 0) rows /= 2;
  return rows;
}

// One box of a block of keys or values, a lane.
template <typename T>
struct Box {
  int rows, tokens;  // of the box; of a page
  int row, slab;     // within the block
  bool active;

  __device__ explicit Box(int page_tokens) {
    const int lane = threadIdx.x % 32;
    tokens = page_tokens;
    rows = BoxRows<T>(page_tokens);
    row = lane / T::kSlabs * rows;
    slab = lane % T::kSlabs;
    active = row < T::kKeys;
  }

  // The page of the box in block j, or -1 where the sequence has ended: the copy engine then fills
  // in zeros.
  __device__ int Page(const Fetch& f, int j) const {
    const int key = j * T::kKeys + row;
    return active && j >= 0 && key < f.kv_len ? f.pages[key / tokens] : -1;
  }

  __device__ void Load(uint8_t* block, const CUtensorMap& map, uint64_t* barrier, int j, int page,
                       int kv_head) const {
    if (!active) return;
    const int key = j * T::kKeys + row;
    LoadBox4(block + slab * T::kSlabBytes + row * T::kSlabRowBytes, map, barrier,
             make_int4(slab * 64, key % tokens, kv_head, page));
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
    if (end >= T::kKeys || end % box.rows == 0) return LoadBlock(maps.v, f, j, page);
    const bool leader = threadIdx.x % 32 == 0;
    uint8_t* block = smem.ring[ring.index];
    Wait(&smem.empty[ring.index], ring.parity ^ 1);
    if (leader) ArriveExpect(&smem.patch, T::kBlockBytes);
    __syncwarp();
    box.Load(block, maps.v, &smem.patch, j, page, f.tile.kv_head);
    Wait(&smem.patch, patch_parity);
    patch_parity ^= 1;
    ClearRows<T>(block, end, (end + box.rows - 1) / box.rows * box.rows);
    FenceSharedForAsync();
    __syncwarp();
    if (leader) Arrive(&smem.full[ring.index]);
    ring.Advance();
  }

  // Hands a tile's description and queries to the consumers.
  __device__ void LoadQueries(const Tile& tile) {
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

  // In the order in which the consumers use them: keys of a block before the values of the block
  // ahead of it.
  __device__ void Run() {
    Fetch f = NextTile<T>(args);
    while (f.tile.blocks > 0) {
      LoadQueries(f.tile);
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
    LoadQueries(f.tile);
  }
};

// ---- Consumers ------------------------------------------------------------------------------

// A warpgroup's 64 rows of one tile. Each thread has two of the rows: index 0 and 1.
template <typename T>
struct State {
  float o[T::kHeadDim / 2] = {};
  float s[T::kKeys / 2];     // scores of a block, then its weights
  uint32_t p[T::kKeys / 4];  // weights, as the A operand of the product with the values
  float ceiling[2] = {-INFINITY, -INFINITY};  // weights are 2^(score - ceiling)
  float sum[2] = {0, 0};                      // of this thread's columns
  float factor[2];        // what o is to be multiplied by before the weights in s count
  bool rescale = false;   // whether that is more than a multiplication by 1
  bool ready = false;     // whether the block after the next is known to be there
};

// S = Q K' for this warpgroup's queries; a group of products in flight.
template <typename T>
__device__ __forceinline__ void Scores(float (&s)[T::kKeys / 2], uint64_t q, uint64_t k) {
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < T::kHeadDim / 16; ++i) {
    const uint32_t column = i % 4 * 32;
    WgmmaBf16<T::kKeys>::template FromShared<false>(
        s, WgmmaAdvance(q, i / 4 * T::kQSlabBytes + column),
        WgmmaAdvance(k, i / 4 * T::kSlabBytes + column), i > 0);
  }
  WgmmaCommit();
}

// O += P V; a group of products in flight.
template <typename T>
__device__ __forceinline__ void Values(float (&o)[T::kHeadDim / 2],
                                       const uint32_t (&p)[T::kKeys / 4], uint64_t v) {
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < T::kKeys / 16; ++i) {
    WgmmaBf16<T::kHeadDim>::template FromRegisters<true>(
        o, p + 4 * i, WgmmaAdvance(v, i * 16 * T::kSlabRowBytes), 1);
  }
  WgmmaCommit();
}

// Scores of keys that a row does not see become -inf. limit[r]: the last key that row r sees,
// counted from the block's first key.
template <int kKeys>
__device__ __forceinline__ void Mask(float (&s)[kKeys / 2], const int (&limit)[2]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    if (i / 4 * 8 + i % 2 > limit[i / 2 % 2] - column) s[i] = -INFINITY;
  }
}

// The largest of a thread's values of row r. Four chains, so that the comparisons need not wait for
// one another.
template <int kKeys>
__device__ __forceinline__ float RowMax(const float (&s)[kKeys / 2], int r) {
  float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) top[i % 4] = fmaxf(top[i % 4], s[i / 2 * 4 + r * 2 + i % 2]);
  float all = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
  all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 1));
  return fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 2));
}

// How far a row's ceiling is set above its largest score, as a power of two.
inline constexpr float kSlack = 8;

// Scores become the exponents of the weights, s * scale_log2 - ceiling, none above 0. Where a row's
// scores pass its ceiling it is raised, and factor[r] is what the row's earlier weights count for;
// returns whether that is so for any row of the warp.
template <bool kMasked, int kKeys>
__device__ __forceinline__ bool Exponents(float (&s)[kKeys / 2], float (&ceiling)[2],
                                          float scale_log2, float (&factor)[2]) {
  factor[0] = factor[1] = 1;
  float base[2] = {ceiling[0], ceiling[1]};
  bool raised = false;
  if (kMasked) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = RowMax<kKeys>(s, r) * scale_log2;
      if (top > ceiling[r]) {
        base[r] = top + kSlack;
        factor[r] = Exp2(ceiling[r] - base[r]);
        ceiling[r] = base[r];
        raised = true;
      }
      // A row that has seen no key yet has no ceiling to subtract.
      if (base[r] == -INFINITY) base[r] = 0;
    }
  }
  // Weights near 1 leave sums of a row far from overflow, so it is enough to look for a positive
  // exponent: the sign bits of the negated ones. Half as many instructions as the row's maximum,
  // and nothing to ask of the other lanes.
  uint32_t signs = 0;
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    s[i] = fmaf(s[i], -scale_log2, base[i / 2 % 2]);
    signs |= __float_as_uint(s[i]);
  }
  if (!kMasked && __any_sync(0xffffffffu, static_cast<int32_t>(signs) < 0)) {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) s[i] = -s[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = RowMax<kKeys>(s, r);
      const float raise = top > 0 ? top + kSlack : 0;
      factor[r] = Exp2(-raise);
      ceiling[r] += raise;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& x = s[i / 2 * 4 + r * 2 + i % 2];
        x = raise - x;
      }
    }
    raised = true;
  }
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) s[i] = -s[i];
  return kMasked ? __any_sync(0xffffffffu, raised) : raised;
}

// Half a block's exponents become weights and join their row's sum.
template <int kKeys, int kHalf>
__device__ __forceinline__ void Weights(float (&s)[kKeys / 2], float (&sum)[2]) {
  float even[2] = {sum[0], sum[1]};
  float odd[2] = {0, 0};
#pragma unroll
  for (int i = kHalf * kKeys / 4; i < (kHalf + 1) * kKeys / 4; i += 2) {
    s[i] = Exp2(s[i]);
    s[i + 1] = Exp2(s[i + 1]);
    even[i / 2 % 2] += s[i];
    odd[i / 2 % 2] += s[i + 1];
  }
  sum[0] = even[0] + odd[0];
  sum[1] = even[1] + odd[1];
}

// Weights as the A operand of the next product.
template <int kKeys>
__device__ __forceinline__ void Pack(const float (&s)[kKeys / 2], uint32_t (&p)[kKeys / 4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) p[i] = PackBf16(s[2 * i], s[2 * i + 1]);
}

template <int kCount>
__device__ __forceinline__ void Rescale(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[i / 2 % 2];
}

// Transposes 4 x 4 words over the four lanes of a quad: lane t gets word t of each lane.
__device__ __forceinline__ void TransposeQuad(uint32_t (&w)[4]) {
#pragma unroll
  for (int d = 1; d <= 2; d *= 2) {
    const bool upper = threadIdx.x & d;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t& low = w[d == 1 ? 2 * i : i];
      uint32_t& high = w[d == 1 ? 2 * i + 1 : i + 2];
      const uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? low : high, d);
      (upper ? low : high) = other;
    }
  }
}

// The first lane's value, which tells the compiler that it is the same in all of the warp: what is
// computed from it then stays in uniform registers, where wgmma wants its operands.
__device__ __forceinline__ int Uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }
__device__ __forceinline__ Tile Uniform(const Tile& tile) {
  return {Uniform(tile.blocks), Uniform(tile.position), Uniform(tile.first_row),
          Uniform(tile.tokens), Uniform(tile.kv_head)};
}

template <typename T>
struct Consumer {
  const PagedPrefillArgs& args;
  typename T::Smem& smem;
  const int group;  // which of the warpgroups
  Cursor<T::kStages> ring;
  Cursor<T::kQBuffers> queries;

  __device__ __forceinline__ uint64_t Block(int index) const {
    return WgmmaMatrix128(smem.ring[index], 8 * T::kSlabRowBytes, T::kSlabBytes);
  }

  // Gives a ring place back to the producer. The warp's products have read it.
  __device__ __forceinline__ void Release(int index) {
    if (threadIdx.x % 32 == 0) Arrive(&smem.empty[index]);
  }

  // Turns: a warpgroup issues products only between these two.
  __device__ __forceinline__ void TakeTurn() const {
    if (T::kTurns) NamedSync(1 + group, 2 * 128);
  }
  __device__ __forceinline__ void PassTurn() const {
    if (T::kTurns) NamedArrive(1 + (group + 1) % T::kConsumers, 2 * 128);
  }

  // The last key that each of this thread's rows sees.
  __device__ __forceinline__ void Limits(const Tile& tile, int (&limit)[2]) const {
    const int group_heads = args.q_heads / args.kv_heads;
    const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    limit[0] = tile.position + row / group_heads;
    limit[1] = tile.position + (row + 8) / group_heads;
  }

  // Scores of block j and, under its softmax, the values of block j + 1. Expects the scores' keys to
  // be there and leaves with the next block there.
  template <bool kMasked>
  __device__ __forceinline__ void Step(State<T>& state, uint64_t q, const int (&limit)[2], int j) {
    const int k_index = ring.index;
    ring.Advance();
    const int v_index = ring.index;
    if (!state.ready) Wait(&smem.full[ring.index], ring.parity);
    ring.Advance();
    TakeTurn();
    Scores<T>(state.s, q, Block(k_index));
    Values<T>(state.o, state.p, Block(v_index));
    WgmmaWait<1>();
    WgmmaHold(state.s);
    Release(k_index);
    Weigh<kMasked>(state, limit, j);
    PassTurn();
    Weights<T::kKeys, 0>(state.s, state.sum);
    // nvcc moves a softmax behind the wait below if both are in one basic block, and would let it
    // begin with the products done; this wait, which seldom waits, makes them two.
    Wait(&smem.full[ring.index], ring.parity);
    WgmmaWait<0>();
    WgmmaHold(state.o);
    WgmmaHold(state.p);
    Release(v_index);
    Finish(state);
  }

  // Scores become exponents, and the sum of earlier weights what it is beside them.
  template <bool kMasked>
  __device__ __forceinline__ void Weigh(State<T>& state, const int (&limit)[2], int j) const {
    if (kMasked) {
      const int local[2] = {limit[0] - j * T::kKeys, limit[1] - j * T::kKeys};
      Mask<T::kKeys>(state.s, local);
    }
    state.rescale = Exponents<kMasked, T::kKeys>(state.s, state.ceiling,
                                                 args.scale * 1.44269504089f, state.factor);
    state.sum[0] *= state.factor[0];
    state.sum[1] *= state.factor[1];
  }

  // With no product in flight: the second half of the weights, all of them packed, and what is summed
  // so far scaled to them.
  __device__ __forceinline__ void Finish(State<T>& state) {
    Weights<T::kKeys, 1>(state.s, state.sum);
    Pack<T::kKeys>(state.s, state.p);
    Cursor<T::kStages> ahead = ring;
    ahead.Advance();
    state.ready = TestWait(&smem.full[ahead.index], ahead.parity);
    if (state.rescale) Rescale(state.o, state.factor);
  }

  __device__ __forceinline__ void Attend(State<T>& state, const Tile& tile) {
    const uint64_t q =
        WgmmaMatrix128(smem.q[queries.index] + group * 64 * T::kSlabRowBytes, 8 * T::kSlabRowBytes,
                       T::kQSlabBytes);
    int limit[2];
    Limits(tile, limit);
    Wait(&smem.full[ring.index], ring.parity);
    Scores<T>(state.s, q, Block(ring.index));
    WgmmaWait<0>();
    WgmmaHold(state.s);
    Release(ring.index);
    ring.Advance();
    int j = tile.blocks - 1;
    Weigh<true>(state, limit, j);
    Weights<T::kKeys, 0>(state.s, state.sum);
    Finish(state);
    Wait(&smem.full[ring.index], ring.parity);
    // Blocks that every row sees whole after it has seen a key of a later block.
    const int unmasked = tile.position / T::kKeys;
#pragma unroll 1
    for (--j; j >= unmasked; --j) Step<true>(state, q, limit, j);
#pragma unroll 1
    for (; j >= 0; --j) Step<false>(state, q, limit, j);
    if (threadIdx.x % 32 == 0) Arrive(&smem.q_empty[queries.index]);
    queries.Advance();
    Values<T>(state.o, state.p, Block(ring.index));
    WgmmaWait<0>();
    WgmmaHold(state.o);
    Release(ring.index);
    ring.Advance();
  }

  // Divides by the sums and writes the rows that exist, 16 bytes a lane.
  __device__ __forceinline__ void Store(const State<T>& state, const Tile& tile) const {
    const int group_heads = args.q_heads / args.kv_heads;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = state.sum[r];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = 1 / sum;
      const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + r * 8 + lane / 4;
      const int token = row / group_heads;
      const int head = tile.kv_head * group_heads + row % group_heads;
      uint16_t* to = static_cast<uint16_t*>(args.out) +
                     (tile.first_row + token) * args.out_token_stride +
                     head * args.out_head_stride + lane % 4 * 8;
#pragma unroll
      for (int i = 0; i < T::kHeadDim / 32; ++i) {
        uint32_t w[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float* o = state.o + (i * 4 + c) * 4 + r * 2;
          w[c] = PackBf16(o[0] * inverse, o[1] * inverse);
        }
        TransposeQuad(w);
        if (token < tile.tokens) {
          *reinterpret_cast<uint4*>(to + i * 32) = make_uint4(w[0], w[1], w[2], w[3]);
        }
      }
    }
  }

  __device__ void Run() {
    if (group == T::kConsumers - 1) PassTurn();
    for (;;) {
      Wait(&smem.q_full[queries.index], queries.parity);
      const Tile tile = Uniform(smem.tile[queries.index]);
      if (tile.blocks == 0) break;
      State<T> state;
      Attend(state, tile);
      Store(state, tile);
    }
    if (group == 0) TakeTurn();  // the other's last word, so that no arrival is left over
  }
};

template <typename T>
__device__ __forceinline__ void InitBarriers(typename T::Smem& smem, const Maps& maps) {
  if (threadIdx.x == 0) {
    PrefetchMap(maps.q);
    PrefetchMap(maps.k);
    PrefetchMap(maps.v);
    constexpr int kConsumerWarps = 4 * T::kConsumers;
    for (int i = 0; i < T::kQBuffers; ++i) {
      InitBarrier(&smem.q_full[i], 1);
      InitBarrier(&smem.q_empty[i], kConsumerWarps);
    }
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem.full[i], 1);
      InitBarrier(&smem.empty[i], kConsumerWarps);
    }
    InitBarrier(&smem.patch, 1);
    FenceBarrierInit();
  }
  __syncthreads();
}

template <typename T>
__global__ void __launch_bounds__(T::kThreads, 1)
    Prefill(const __grid_constant__ PagedPrefillArgs args, const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  auto& smem = *reinterpret_cast<typename T::Smem*>((reinterpret_cast<uintptr_t>(raw) + 1023) &
                                                    ~uintptr_t{1023});
  InitBarriers<T>(smem, maps);
  WaitForPriorGrid();
  StartNextGrid();
  const int warpgroup = Uniform(static_cast<int>(threadIdx.x / 128));
  if (warpgroup == 0) {
    ReleaseRegisters<T::kProducerRegisters>();
    if (threadIdx.x < 32) Producer<T>{args, maps, smem, Box<T>(args.page_tokens)}.Run();
  } else {
    ClaimRegisters<T::kConsumerRegisters>();
    Consumer<T>{args, smem, warpgroup - 1}.Run();
  }
#endif
}

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_CUH_
