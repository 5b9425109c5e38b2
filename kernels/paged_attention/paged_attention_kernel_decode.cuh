// Decode: up to 8 * kTiles query rows of a kv head against a range of keys, bound by reading the
// cache. See README.md, "Decode on CUDA".
//
// A warp takes chunks of 16 keys in turn with the block's other warps and keeps all of it in
// registers: S^T = K Q^T, whose A operand is 16 rows of keys as they lie in memory, then
// O^T += V^T P^T. What a matrix instruction sums over may come in any order as long as both
// operands agree, so each lane reads 16 bytes at a time and uses them as four operand registers:
// step p of S pairs element 32 p + 8 t + i of a key with the same element of the query. For V^T
// the pairs of two keys' values are interleaved by byte permutation.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_

#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace::decode {

constexpr int kChunk = 16;  // keys

// Lane 4 g + t.
struct Lane {
  int g, t;
};

// How the parts of a tile are joined: by the last block to write its part to global memory, or in
// the shared memory of a cluster that holds them all (a lone sequence, whose parts are even).
enum class Join { kGlobal, kCluster };

template <int kHeadDim, int kTileCount, Join kJoinBy>
struct Traits {
  static constexpr int kDim = kHeadDim;
  static constexpr int kTiles = kTileCount;
  static constexpr Join kJoin = kJoinBy;
  static constexpr int kSteps = kDim / 32;          // 16-byte loads of a lane along a key
  static constexpr int kHalves = (kDim + 63) / 64;  // and along a value; 96 half fills the second
  static constexpr int kRows = 8 * kTiles;
  static constexpr bool kQueriesInRegisters = kTiles == 1 && kDim <= 128 && kJoin == Join::kGlobal;
  static constexpr int kWarps =
      kJoin == Join::kCluster ? (kTiles == 1 && kDim <= 128 ? 16 : 8) : (kTiles == 1 ? 4 : 4);
  // Blocks of a multiprocessor, which bound the registers. In all 12 warps of up to 168, or 8 where
  // a chunk takes more; of clusters two, so that the next launch's can start beside this one's.
  static constexpr int kBlocks = kJoin == Join::kCluster ? 1 : kTiles == 1 && kDim <= 128 ? 3 : 2;

  struct Shared {
    uint4 q[kQueriesInRegisters ? 1 : kTiles * kSteps * 32];  // as the lanes use them
    float2 stats[kWarps][kRows];
    float sums[kWarps][8][kDim + 4];
    // Of the whole cluster: what the other blocks have for this one to join.
    float4 peer_sums[kJoin == Join::kCluster ? kRows * kDim / 4 : 1];
    float2 peer_stats[kJoin == Join::kCluster ? kRows * kDim / 4 : 1];
  };
};

// 16 keys and their values as they came from memory.
template <typename T>
struct Chunk {
  uint4 k[2][T::kSteps];   // keys g and g + 8
  uint4 v[4][T::kHalves];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
};

// Where a lane finds its part of the chunks of one kv head. Pages hold whole chunks, rows are
// dense.
struct Cursor {
  const int32_t* table;
  const char* k;  // of page 0, chunk 0
  const char* v;

  // The page that holds the chunk, and the chunk's number in it.
  __device__ __forceinline__ uint2 Find(const PagedAttentionKernelArgs& args, int chunk) const {
    const uint32_t page = __umulhi(2 * static_cast<uint32_t>(chunk), args.chunk_reciprocal);
    return {static_cast<uint32_t>(max(__ldg(table + page), 0)),
            static_cast<uint32_t>(chunk) - page * args.chunks_per_page};
  }
};

template <typename T>
__device__ __forceinline__ void LoadKeys(const char* head, uint32_t page_bytes, uint2 where,
                                         Chunk<T>& chunk) {
  constexpr int kRow = T::kDim * 2;  // bytes
  const char* p = head + uint64_t{where.x} * page_bytes + where.y * (kChunk * kRow);
#pragma unroll
  for (int i = 0; i < T::kSteps; ++i) {
    chunk.k[0][i] = LoadStream(p + 64 * i);
    chunk.k[1][i] = LoadStream(p + 8 * kRow + 64 * i);
  }
}

template <typename T>
__device__ __forceinline__ void LoadValues(const char* head, uint32_t page_bytes, uint2 where,
                                           Lane lane, Chunk<T>& chunk) {
  constexpr int kRow = T::kDim * 2;  // bytes
  const char* p = head + uint64_t{where.x} * page_bytes + where.y * (kChunk * kRow);
#pragma unroll
  for (int h = 0; h < T::kHalves; ++h) {
    const bool inside = T::kDim % 64 == 0 || 64 * h + 8 * lane.g < T::kDim;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const char* from = p + (i % 2 + i / 2 * 8) * kRow + 128 * h;
      chunk.v[i][h] = inside ? LoadStream(from) : uint4{};
    }
  }
}

// Read where it stands: the compiler would move queries into registers ahead of the loop.
__device__ __forceinline__ uint4 LoadShared(const uint4* from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
  return v;
}

__device__ __forceinline__ const uint32_t* Words(const uint4& v) {
  return reinterpret_cast<const uint32_t*>(&v);
}

// The running softmax of a warp: rows 8n + 2t and 8n + 2t + 1 of each tile n, output elements
// 64 h + 8 g + 2 j and the one after.
template <typename T>
struct Accumulator {
  static constexpr int kTiles = T::kTiles;
  float o[kTiles][T::kHalves * 4][4] = {};
  float top[kTiles][2];
  float total[kTiles][2] = {};

  __device__ __forceinline__ Accumulator() {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) top[n][0] = top[n][1] = -INFINITY;
  }

  // Takes the scores s of tile n, already masked: weights in, sums rescaled where the maximum grew.
  __device__ __forceinline__ void Weigh(int n, float scale_log2, float (&s)[4]) {
    float top0 = fmaxf(s[0], s[2]), top1 = fmaxf(s[1], s[3]);
#pragma unroll
    for (int x = 4; x < 32; x *= 2) {
      top0 = fmaxf(top0, __shfl_xor_sync(~0u, top0, x));
      top1 = fmaxf(top1, __shfl_xor_sync(~0u, top1, x));
    }
    top0 = fmaxf(top[n][0], top0 * scale_log2);
    top1 = fmaxf(top[n][1], top1 * scale_log2);
    // A row that has seen no key yet has maximum -inf, from which nothing can be subtracted.
    const float base0 = top0 == -INFINITY ? 0 : top0, base1 = top1 == -INFINITY ? 0 : top1;
    if (__any_sync(~0u, top0 > top[n][0] || top1 > top[n][1])) {
      const float r0 = Exp2(top[n][0] - base0), r1 = Exp2(top[n][1] - base1);
      total[n][0] *= r0;
      total[n][1] *= r1;
#pragma unroll
      for (auto& part : o[n]) {
        part[0] *= r0;
        part[1] *= r1;
        part[2] *= r0;
        part[3] *= r1;
      }
      top[n][0] = top0;
      top[n][1] = top1;
    }
    s[0] = Exp2(fmaf(s[0], scale_log2, -base0));
    s[1] = Exp2(fmaf(s[1], scale_log2, -base1));
    s[2] = Exp2(fmaf(s[2], scale_log2, -base0));
    s[3] = Exp2(fmaf(s[3], scale_log2, -base1));
    total[n][0] += s[0] + s[2];
    total[n][1] += s[1] + s[3];
  }

  // O^T += V^T P^T, with the weights of each tile as b0, b1.
  __device__ __forceinline__ void AddValues(const Chunk<T>& chunk, const uint32_t (&p)[kTiles][2]) {
#pragma unroll
    for (int h = 0; h < T::kHalves; ++h) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t x0 = Words(chunk.v[0][h])[j], x1 = Words(chunk.v[1][h])[j];
        const uint32_t y0 = Words(chunk.v[2][h])[j], y1 = Words(chunk.v[3][h])[j];
        const uint32_t a0 = __byte_perm(x0, x1, 0x5410), a1 = __byte_perm(x0, x1, 0x7632);
        const uint32_t a2 = __byte_perm(y0, y1, 0x5410), a3 = __byte_perm(y0, y1, 0x7632);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) MmaBf16(o[n][h * 4 + j], a0, a1, a2, a3, p[n][0], p[n][1]);
      }
    }
  }
};

// Scores of keys that a row does not see become -inf; values past the part's last key become 0,
// since a weight of 0 does not hide a NaN. `first`: key of the chunk.
template <typename T>
__device__ __forceinline__ void Mask(const PagedAttentionWork& work, int group, int first,
                                     Lane lane, float (&s)[T::kTiles][4], Chunk<T>& chunk) {
#pragma unroll
  for (int n = 0; n < T::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int visible = work.visible + (8 * n + 2 * lane.t + i % 2) / group;
      if (first + lane.g + i / 2 * 8 >= visible) s[n][i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + 2 * lane.t + i % 2 + i / 2 * 8 < work.kv_end) continue;
#pragma unroll
    for (auto& v : chunk.v[i]) v = {};
  }
}

// Four elements of a row joined from the warps of the block, before the division by `total`.
struct Joined {
  float4 sum;
  float top, total;
};

template <typename T>
__device__ __forceinline__ Joined JoinWarps(const typename T::Shared& shared, int n, int r, int d) {
  Joined joined = {{}, -INFINITY, 0};
#pragma unroll
  for (int w = 0; w < T::kWarps; ++w) joined.top = fmaxf(joined.top, shared.stats[w][8 * n + r].x);
  const float base = joined.top == -INFINITY ? 0 : joined.top;
#pragma unroll
  for (int w = 0; w < T::kWarps; ++w) {
    const float2 stats = shared.stats[w][8 * n + r];
    const float weight = Exp2(stats.x - base);
    joined.total += weight * stats.y;
    AddScaled(*reinterpret_cast<const float4*>(&shared.sums[w][r][d]), weight, joined.sum);
  }
  return joined;
}

// Joins the elements that fall to this block from all blocks of the cluster and writes them.
template <typename T>
__device__ __forceinline__ void JoinCluster(const PagedAttentionKernelArgs& args,
                                            const PagedAttentionWork& work, int head,
                                            const typename T::Shared& shared) {
  constexpr int kColumns = T::kDim / 4;
  const int parts = work.parts, elements = work.queries * args.group * kColumns;
  for (int i = threadIdx.x; i * parts + work.part < elements; i += T::kWarps * 32) {
    float top = -INFINITY, total = 0;
#pragma unroll 4
    for (int p = 0; p < parts; ++p) top = fmaxf(top, shared.peer_stats[i * parts + p].x);
    const float base = top == -INFINITY ? 0 : top;
    float4 sum = {};
#pragma unroll 4
    for (int p = 0; p < parts; ++p) {
      const float2 stats = shared.peer_stats[i * parts + p];
      const float weight = Exp2(stats.x - base);
      total += weight * stats.y;
      AddScaled(shared.peer_sums[i * parts + p], weight, sum);
    }
    const int e = i * parts + work.part;
    StoreScaled(sum, 1 / total, OutRow(args, work, head, e / kColumns) + e % kColumns * 4);
  }
}

// Joins the block's warps and writes the result: the output, the part, or the part's elements to
// the blocks of the cluster that join them.
template <typename T>
__device__ __forceinline__ void Finish(const PagedAttentionKernelArgs& args,
                                       const PagedAttentionWork& work, int head, Lane lane,
                                       Accumulator<T>& acc, typename T::Shared& shared) {
  constexpr int kColumns = T::kDim / 4;
  const int warp = threadIdx.x / 32;
  const PartialTile part = PartOf(args, work, head, work.part);
  if constexpr (T::kJoin == Join::kCluster) WaitForCluster();  // all have started
#pragma unroll
  for (int n = 0; n < T::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int x = 4; x < 32; x *= 2) acc.total[n][i] += __shfl_xor_sync(~0u, acc.total[n][i], x);
      if (lane.g == 0)
        shared.stats[warp][8 * n + 2 * lane.t + i] = {acc.top[n][i], acc.total[n][i]};
    }
    if (n > 0) __syncthreads();  // the tile before has been read
#pragma unroll
    for (int i = 0; i < T::kHalves * 4; ++i) {
      const int d = 64 * (i / 4) + 8 * lane.g + 2 * (i % 4);
      if (T::kDim % 64 != 0 && d >= T::kDim) continue;
      const float(&o)[4] = acc.o[n][i];
      *reinterpret_cast<float2*>(&shared.sums[warp][2 * lane.t][d]) = {o[0], o[2]};
      *reinterpret_cast<float2*>(&shared.sums[warp][2 * lane.t + 1][d]) = {o[1], o[3]};
    }
    __syncthreads();
    const int rows = min(8, work.queries * args.group - 8 * n);
    for (int i = threadIdx.x; i < rows * kColumns; i += T::kWarps * 32) {
      const int r = i / kColumns, d = i % kColumns * 4;
      const Joined joined = JoinWarps<T>(shared, n, r, d);
      if constexpr (T::kJoin == Join::kCluster) {
        const int e = n * 8 * kColumns + i, owner = e % work.parts;
        const int slot = e / work.parts * work.parts + work.part;
        *InPeer(&shared.peer_sums[slot], owner) = joined.sum;
        *InPeer(&shared.peer_stats[slot], owner) = {joined.top, joined.total};
      } else if (work.parts == 1) {
        StoreScaled(joined.sum, 1 / joined.total, OutRow(args, work, head, 8 * n + r) + d);
      } else {
        *reinterpret_cast<float4*>(part.sums + (8 * n + r) * T::kDim + d) = joined.sum;
        if (d == 0) part.stats[8 * n + r] = {joined.top, joined.total};
      }
    }
  }
  if constexpr (T::kJoin == Join::kCluster) {
    ArriveAtCluster();
    WaitForCluster();
    JoinCluster<T>(args, work, head, shared);
  } else {
    if (work.parts > 1 && IsLastPart(args, work, head)) JoinParts(args, work, head);
  }
}

template <typename T>
__device__ __forceinline__ Cursor CursorOf(const PagedAttentionKernelArgs& args,
                                           const PagedAttentionWork& work, int head, Lane lane) {
  Cursor at;
  at.table = args.page_table + work.sequence * args.table_row;
  at.k = static_cast<const char*>(args.k_cache) +
         2 * (head * args.k_head + lane.g * T::kDim + 8 * lane.t);
  at.v = static_cast<const char*>(args.v_cache) +
         2 * (head * args.v_head + 2 * lane.t * T::kDim + 8 * lane.g);
  return at;
}

// Row 8 n + g of the queries, elements 32 p + 8 t and on.
__device__ __forceinline__ uint4 LoadQuery(const PagedAttentionKernelArgs& args,
                                           const PagedAttentionWork& work, int head, Lane lane,
                                           int n, int p) {
  const int r = min(8 * n + lane.g, work.queries * args.group - 1);
  const auto* q = static_cast<const __nv_bfloat16*>(args.q) +
                  (work.token + r / args.group) * args.q_token +
                  (head * args.group + r % args.group) * args.q_head;
  return __ldg(reinterpret_cast<const uint4*>(q + 32 * p + 8 * lane.t));
}

template <typename T>
__global__ void __launch_bounds__(T::kWarps * 32, T::kBlocks)
    PagedDecode(const __grid_constant__ PagedAttentionKernelArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename T::Shared*>(memory);
  constexpr int kStride = T::kWarps;  // chunks from a warp's one to its next
  const int warp = threadIdx.x / 32, index = threadIdx.x % 32;
  const Lane lane = {index / 4, index % 4};
  // A cluster's blocks follow each other and are the parts of one head.
  constexpr bool kClusters = T::kJoin == Join::kCluster;
  const int item = kClusters ? blockIdx.x % args.items : blockIdx.x / args.kv_heads;
  const int head = kClusters ? blockIdx.x / args.items : blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  if constexpr (kClusters) ArriveAtCluster();
  const Cursor at = CursorOf<T>(args, work, head, lane);
  Chunk<T> chunk;
  int c = work.kv_begin / kChunk + warp;
  const int end = (work.kv_end + kChunk - 1) / kChunk;
  uint2 where = {};
  if (c < end) where = at.Find(args, c);
  // Keys of earlier steps are there already; those of this step only after the wait.
  const bool settled = c < end && (c + 1) * kChunk <= work.settled;
  if (settled) {
    LoadKeys<T>(at.k, args.k_page_bytes, where, chunk);
    LoadValues<T>(at.v, args.v_page_bytes, where, lane, chunk);
  }
  WaitForPriorGrid();
  StartNextGrid();
  if (!settled && c < end) {
    LoadKeys<T>(at.k, args.k_page_bytes, where, chunk);
    LoadValues<T>(at.v, args.v_page_bytes, where, lane, chunk);
  }
  uint4 q[T::kSteps];
  if constexpr (T::kQueriesInRegisters) {
#pragma unroll
    for (int p = 0; p < T::kSteps; ++p) q[p] = LoadQuery(args, work, head, lane, 0, p);
  } else {
    for (int i = warp; i < T::kTiles * T::kSteps; i += T::kWarps) {
      shared.q[i * 32 + index] = LoadQuery(args, work, head, lane, i / T::kSteps, i % T::kSteps);
    }
    __syncthreads();
  }

  if (c + kStride < end) where = at.Find(args, c + kStride);
  const int masked = work.visible / kChunk;  // from this chunk on rows do not see all keys
  Accumulator<T> acc;
  for (; c < end; c += kStride) {
    float s[T::kTiles][4] = {};
#pragma unroll
    for (int p = 0; p < T::kSteps; ++p) {
      const uint4 k0 = chunk.k[0][p], k1 = chunk.k[1][p];
#pragma unroll
      for (int n = 0; n < T::kTiles; ++n) {
        const uint4 b =
            T::kQueriesInRegisters ? q[p] : LoadShared(&shared.q[(n * T::kSteps + p) * 32 + index]);
        MmaBf16(s[n], k0.x, k1.x, k0.y, k1.y, b.x, b.y);
        MmaBf16(s[n], k0.z, k1.z, k0.w, k1.w, b.z, b.w);
      }
    }
    const bool more = c + kStride < end;
    if (more) LoadKeys<T>(at.k, args.k_page_bytes, where, chunk);
    if (c >= masked) Mask<T>(work, args.group, c * kChunk, lane, s, chunk);
    uint32_t p[T::kTiles][2];
#pragma unroll
    for (int n = 0; n < T::kTiles; ++n) {
      acc.Weigh(n, args.scale_log2, s[n]);
      p[n][0] = TransposeMatrix(PackBf16(s[n][0], s[n][1]));
      p[n][1] = TransposeMatrix(PackBf16(s[n][2], s[n][3]));
    }
    acc.AddValues(chunk, p);
    if (more) {
      LoadValues<T>(at.v, args.v_page_bytes, where, lane, chunk);
      if (c + 2 * kStride < end) where = at.Find(args, c + 2 * kStride);
    }
  }
  Finish<T>(args, work, head, lane, acc, shared);
}

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
