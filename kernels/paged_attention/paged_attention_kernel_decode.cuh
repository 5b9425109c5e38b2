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
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace::decode {

constexpr int kChunk = 16;                        // keys
constexpr int kSmallWarps = 4, kLargeWarps = 16;  // of a block

// Lane 4 g + t.
struct Lane {
  int g, t;
};

template <int kHeadDim, int kTileCount, int kWarpCount>
struct Traits {
  static constexpr int kDim = kHeadDim;
  static constexpr int kTiles = kTileCount;
  static constexpr int kWarps = kWarpCount;
  static constexpr int kSteps = kDim / 32;          // 16-byte loads of a lane along a key
  static constexpr int kHalves = (kDim + 63) / 64;  // and along a value; 96 half fills the second
  static constexpr int kRows = 8 * kTiles;
  static constexpr bool kQueriesInRegisters = kTiles == 1 && kDim <= 128 && kWarps == kSmallWarps;
  // Of a multiprocessor, which bounds the registers: 12 warps of up to 168 in all, 8 where a chunk
  // takes more, or one block of 16 warps of up to 128.
  static constexpr int kBlocks = kWarps == kLargeWarps ? 1 : kTiles == 1 && kDim <= 128 ? 3 : 2;
  static constexpr int kPages = 512;  // of the part that are kept at hand

  struct Shared {
    uint32_t pages[kPages];
    uint4 q[kQueriesInRegisters ? 1 : kTiles * kSteps * 32];  // as the lanes use them
    float2 stats[kWarps][kRows];
    float sums[kWarps][8][kDim + 4];
  };
};

// What a thread works on.
struct Job {
  const PagedAttentionKernelArgs& args;
  const PagedAttentionWork& work;
  int head;  // of the cache
  Lane lane;
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
};

// Page and chunk in it.
struct Place {
  uint32_t page, chunk;
};

__device__ __forceinline__ uint32_t PageIndex(const PagedAttentionKernelArgs& args, int chunk) {
  return __umulhi(2 * static_cast<uint32_t>(chunk), args.chunk_reciprocal);
}

// Entries past a sequence's end are -1, which this never sees but for a wrong plan.
__device__ __forceinline__ uint32_t LoadPage(const int32_t* table, uint32_t index) {
  return static_cast<uint32_t>(max(__ldg(table + index), 0));
}

template <typename T>
__device__ __forceinline__ void LoadKeys(const char* head, uint32_t page_bytes, Place where,
                                         Chunk<T>& chunk) {
  constexpr int kRow = T::kDim * 2;  // bytes
  const char* p = head + uint64_t{where.page} * page_bytes + where.chunk * (kChunk * kRow);
#pragma unroll
  for (int i = 0; i < T::kSteps; ++i) {
    chunk.k[0][i] = LoadStream(p + 64 * i);
    chunk.k[1][i] = LoadStream(p + 8 * kRow + 64 * i);
  }
}

template <typename T>
__device__ __forceinline__ void LoadValues(const char* head, uint32_t page_bytes, Place where,
                                           Lane lane, Chunk<T>& chunk) {
  constexpr int kRow = T::kDim * 2;  // bytes
  const char* p = head + uint64_t{where.page} * page_bytes + where.chunk * (kChunk * kRow);
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

  // Scores, already masked, become weights: relative to `top`, which follows the maximum only where
  // that outgrows it by kSlack, so that the sums are seldom rescaled. In powers of two.
  __device__ __forceinline__ void Weigh(float scale_log2, float (&s)[kTiles][4]) {
    constexpr float kSlack = 8;
    float most[kTiles][2];
    bool grown = false;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        most[n][i] = fmaxf(s[n][i], s[n][i + 2]) * scale_log2;
        grown |= most[n][i] > top[n][i] + kSlack;
      }
    }
    if (__any_sync(~0u, grown)) Rescale(most);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[n][i] = Exp2(fmaf(s[n][i], scale_log2, -Base(top[n][i % 2])));
        total[n][i % 2] += s[n][i];
      }
    }
  }

  // A row that has seen no key yet has maximum -inf, from which nothing can be subtracted.
  static __device__ __forceinline__ float Base(float top) { return top == -INFINITY ? 0 : top; }

  // Raises the tops to what any lane of the row has.
  __device__ __forceinline__ void Rescale(float (&most)[kTiles][2]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& m = most[n][i];
#pragma unroll
        for (int x = 4; x < 32; x *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, x));
        m = fmaxf(m, top[n][i]);
        const float by = Exp2(top[n][i] - Base(m));
        top[n][i] = m;
        total[n][i] *= by;
#pragma unroll
        for (auto& part : o[n]) {
          part[i] *= by;
          part[i + 2] *= by;
        }
      }
    }
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
__device__ __forceinline__ void Mask(const Job& job, int first, float (&s)[T::kTiles][4],
                                     Chunk<T>& chunk) {
#pragma unroll
  for (int n = 0; n < T::kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int visible = job.work.visible + (8 * n + 2 * job.lane.t + i % 2) / job.args.group;
      if (first + job.lane.g + i / 2 * 8 >= visible) s[n][i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + 2 * job.lane.t + i % 2 + i / 2 * 8 < job.work.kv_end) continue;
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

// Joins the block's warps and writes the result: the output, the part, or the part's elements to
// the blocks of the cluster that join them.
template <typename T>
__device__ __forceinline__ void Finish(const Job& job, Accumulator<T>& acc,
                                       typename T::Shared& shared) {
  const auto& [args, work, head, lane] = job;
  constexpr int kColumns = T::kDim / 4;
  const int warp = threadIdx.x / 32;
  const PartialTile part = PartOf(args, work, head, work.part);
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
      if (work.parts == 1) {
        StoreScaled(joined.sum, 1 / joined.total, OutRow(args, work, head, 8 * n + r) + d);
      } else {
        *reinterpret_cast<float4*>(part.sums + (8 * n + r) * T::kDim + d) = joined.sum;
        if (d == 0) part.stats[8 * n + r] = {joined.top, joined.total};
      }
    }
  }
  if (work.parts > 1 && IsLastPart(args, work, head)) JoinParts(args, work, head);
}

template <typename T>
__device__ __forceinline__ Cursor CursorOf(const Job& job) {
  const auto& [args, work, head, lane] = job;
  Cursor at;
  at.table = args.page_table + work.sequence * args.table_row;
  at.k = static_cast<const char*>(args.k_cache) +
         2 * (head * args.k_head + lane.g * T::kDim + 8 * lane.t);
  at.v = static_cast<const char*>(args.v_cache) +
         2 * (head * args.v_head + 2 * lane.t * T::kDim + 8 * lane.g);
  return at;
}

// Row 8 n + g of the queries, elements 32 p + 8 t and on.
__device__ __forceinline__ uint4 LoadQuery(const Job& job, int n, int p) {
  const auto& [args, work, head, lane] = job;
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
  const int item = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  const Job job = {args, work, head, lane};
  const Cursor at = CursorOf<T>(job);
  Chunk<T> chunk;
  int c = work.kv_begin / kChunk + warp;
  const int end = (work.kv_end + kChunk - 1) / kChunk;
  const uint32_t first_page = PageIndex(args, work.kv_begin / kChunk);
  const auto find = [&](int of) -> Place {
    const uint32_t page = PageIndex(args, of), near = page - first_page;
    return {near < T::kPages ? shared.pages[near] : LoadPage(at.table, page),
            static_cast<uint32_t>(of) - page * args.chunks_per_page};
  };
  Place where = {};
  if (c < end) {
    const uint32_t page = PageIndex(args, c);
    where = {LoadPage(at.table, page), static_cast<uint32_t>(c) - page * args.chunks_per_page};
  }
  // Keys of earlier steps are there already; those of this step only after the wait.
  const bool settled = c < end && (c + 1) * kChunk <= work.settled;
  if (settled) {
    LoadKeys<T>(at.k, args.k_page_bytes, where, chunk);
    LoadValues<T>(at.v, args.v_page_bytes, where, lane, chunk);
  }
  for (uint32_t i = threadIdx.x;
       i < T::kPages && first_page + i <= PageIndex(args, max(end, 1) - 1); i += T::kWarps * 32) {
    shared.pages[i] = LoadPage(at.table, first_page + i);
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
    for (int p = 0; p < T::kSteps; ++p) q[p] = LoadQuery(job, 0, p);
  } else {
    for (int i = warp; i < T::kTiles * T::kSteps; i += T::kWarps) {
      shared.q[i * 32 + index] = LoadQuery(job, i / T::kSteps, i % T::kSteps);
    }
  }
  __syncthreads();

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
    if (more) LoadKeys<T>(at.k, args.k_page_bytes, find(c + kStride), chunk);
    if (c >= masked) Mask<T>(job, c * kChunk, s, chunk);
    acc.Weigh(args.scale_log2, s);
    uint32_t p[T::kTiles][2];
#pragma unroll
    for (int n = 0; n < T::kTiles; ++n) {
      p[n][0] = TransposeMatrix(PackBf16(s[n][0], s[n][1]));
      p[n][1] = TransposeMatrix(PackBf16(s[n][2], s[n][3]));
    }
    acc.AddValues(chunk, p);
    if (more) LoadValues<T>(at.v, args.v_page_bytes, find(c + kStride), lane, chunk);
  }
  Finish<T>(job, acc, shared);
}

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
