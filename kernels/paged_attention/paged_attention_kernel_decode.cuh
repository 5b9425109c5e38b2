// Decode: up to 8 * kTiles query rows of a kv head against a range of keys, bound by reading the
// cache. See README.md, "Decode on CUDA".
//
// A warp takes chunks of keys in turn with the block's other warps and keeps all of it in
// registers: for each piece of 16 keys S^T = K Q^T, whose A operand is 16 rows of keys as they lie
// in memory, then O^T += V^T P^T. What a matrix instruction sums over may come in any order as long
// as both operands agree, so each lane reads 16 bytes at a time and uses them as operand registers
// without shuffles. How, depends on the cache: T::Cache::Chunk.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_

#include "kernels/paged_attention/paged_attention_kernel_decode_bf16.cuh"
#include "kernels/paged_attention/paged_attention_kernel_decode_fp8.cuh"
#include "kernels/paged_attention/paged_attention_kernel_decode_traits.cuh"
#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace::decode {

template <typename T>
using Chunk = typename T::Cache::template Chunk<T>;

// What a thread works on.
struct Job {
  const PagedAttentionKernelArgs& args;
  const PagedAttentionWork& work;
  int head;  // of the cache
  Lane lane;
};

// Where a lane finds its part of the pieces of one kv head. Pages hold whole pieces, rows are
// dense.
struct Cursor {
  const int32_t* table;
  const char* k;  // of page 0, piece 0
  const char* v;
};

// Page and piece in it.
struct Place {
  uint32_t page, piece;

  template <typename T>
  __device__ __forceinline__ const char* In(const char* head, uint32_t page_bytes) const {
    constexpr int kPieceBytes = kPieceKeys * T::kDim * T::Cache::kBytes;
    return head + uint64_t{page} * page_bytes + piece * kPieceBytes;
  }
};

__device__ __forceinline__ uint32_t PageIndex(const PagedAttentionKernelArgs& args, int piece) {
  return __umulhi(2 * static_cast<uint32_t>(piece), args.piece_reciprocal);
}

// Entries past a sequence's end are -1, which this never sees but for a wrong plan.
__device__ __forceinline__ uint32_t LoadPage(const int32_t* table, uint32_t index) {
  return static_cast<uint32_t>(max(__ldg(table + index), 0));
}

// Read where it stands: the compiler would move queries into registers ahead of the loop.
__device__ __forceinline__ uint4 LoadShared(const uint4* from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
  return v;
}

// The running softmax of a warp: rows 8n + 2t and 8n + 2t + 1 of each tile n, output elements
// Chunk::Column(i) and the one after.
template <typename T>
struct Accumulator {
  static constexpr int kTiles = T::kTiles;
  float o[kTiles][Chunk<T>::kResults][4] = {};
  float top[kTiles][2];
  float total[kTiles][2] = {};

  __device__ __forceinline__ Accumulator() {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) top[n][0] = top[n][1] = -INFINITY;
  }

  // Scores, already masked, become weights: relative to `top`, which follows the maximum, less the
  // headroom, only where that outgrows it by kSlack, so that the sums are seldom rescaled. In
  // powers of two.
  __device__ __forceinline__ void Weigh(float scale_log2, float (&s)[T::kPieces][kTiles][4]) {
    constexpr float kSlack = 8 + T::Cache::kHeadroom;
    float most[kTiles][2];
    bool grown = false;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        most[n][i] = fmaxf(s[0][n][i], s[0][n][i + 2]);
#pragma unroll
        for (int b = 1; b < T::kPieces; ++b) {
          most[n][i] = fmaxf(most[n][i], fmaxf(s[b][n][i], s[b][n][i + 2]));
        }
        most[n][i] *= scale_log2;
        grown |= most[n][i] > top[n][i] + kSlack;
      }
    }
    if (__any_sync(~0u, grown)) Rescale(most);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float base = Base(top[n][i % 2]);
#pragma unroll
        for (int b = 0; b < T::kPieces; ++b) {
          s[b][n][i] = Exp2(fmaf(s[b][n][i], scale_log2, -base));
          total[n][i % 2] += s[b][n][i];
        }
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
        m = fmaxf(m - T::Cache::kHeadroom, top[n][i]);
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
};

// Scores of keys that a row does not see, or that are not of the part, become -inf; values past the
// part's last key become 0, since a weight of 0 does not hide a NaN. `first`: key of the chunk.
template <typename T>
__device__ __forceinline__ void Mask(const Job& job, int first,
                                     float (&s)[T::kPieces][T::kTiles][4], Chunk<T>& chunk) {
#pragma unroll
  for (int b = 0; b < T::kPieces; ++b) {
    const int left = first + b * kPieceKeys;
#pragma unroll
    for (int n = 0; n < T::kTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int visible = job.work.visible + (8 * n + 2 * job.lane.t + i % 2) / job.args.group;
        if (left + job.lane.g + i / 2 * 8 >= min(visible, job.work.kv_end)) s[b][n][i] = -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (left + 2 * job.lane.t + i % 2 + i / 2 * 8 >= job.work.kv_end) chunk.ClearValue(b, i);
    }
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
  const float v_scale = ScaleOf(args.v_scale, head);
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
    for (int i = 0; i < Chunk<T>::kResults; ++i) {
      const int d = Chunk<T>::Column(i, lane);
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
        StoreScaled(joined.sum, v_scale / joined.total, OutRow(args, work, head, 8 * n + r) + d);
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
  constexpr int kBytes = T::Cache::kBytes;
  Cursor at;
  at.table = args.page_table + work.sequence * args.table_row;
  at.k = static_cast<const char*>(args.k_cache) + kBytes * (head * args.k_head) +
         Chunk<T>::KeyOffset(lane);
  at.v = static_cast<const char*>(args.v_cache) + kBytes * (head * args.v_head) +
         Chunk<T>::ValueOffset(lane);
  return at;
}

// Step p of row 8 n + g of the queries.
template <typename T>
__device__ __forceinline__ uint4 LoadQuery(const Job& job, int n, int p) {
  const auto& [args, work, head, lane] = job;
  const int r = min(8 * n + lane.g, work.queries * args.group - 1);
  const auto* q = static_cast<const __nv_bfloat16*>(args.q) +
                  (work.token + r / args.group) * args.q_token +
                  (head * args.group + r % args.group) * args.q_head;
  return Chunk<T>::Query(__ldg(reinterpret_cast<const uint4*>(q + Chunk<T>::QueryColumn(p, lane))));
}

// Finds the pieces of a part. The pages of its first T::kPages pages are at hand in shared memory.
template <typename T>
struct Finder {
  const Job& job;
  const Cursor& at;
  const typename T::Shared& shared;
  uint32_t first_page;

  __device__ __forceinline__ Place Find(int piece) const {
    const uint32_t page = PageIndex(job.args, piece), near = page - first_page;
    return {near < T::kPages ? shared.pages[near] : LoadPage(at.table, page),
            static_cast<uint32_t>(piece) - page * job.args.pieces_per_page};
  }
  // Before shared memory holds them.
  __device__ __forceinline__ Place FindInTable(int piece) const {
    const uint32_t page = PageIndex(job.args, piece);
    return {LoadPage(at.table, page),
            static_cast<uint32_t>(piece) - page * job.args.pieces_per_page};
  }
};

template <typename T>
__device__ __forceinline__ void LoadKeys(const Job& job, const Cursor& at,
                                         const Place (&where)[T::kPieces], int pieces,
                                         Chunk<T>& chunk) {
#pragma unroll
  for (int b = 0; b < T::kPieces; ++b) {
    if (b >= pieces) break;
    chunk.LoadKeys(where[b].template In<T>(at.k, job.args.k_page_bytes), b, job.lane);
  }
}

template <typename T>
__device__ __forceinline__ void LoadValues(const Job& job, const Cursor& at,
                                           const Place (&where)[T::kPieces], int pieces,
                                           Chunk<T>& chunk) {
#pragma unroll
  for (int b = 0; b < T::kPieces; ++b) {
    if (b >= pieces) break;
    chunk.LoadValues(where[b].template In<T>(at.v, job.args.v_page_bytes), b, job.lane);
  }
}

template <typename T>
__global__ void __launch_bounds__(T::kWarps * 32, T::kBlocks)
    PagedDecode(const __grid_constant__ PagedAttentionKernelArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename T::Shared*>(memory);
  constexpr int kStride = T::kWarps * T::kPieces;  // pieces from a warp's chunk to its next
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
  int c = work.kv_begin / kPieceKeys + warp * T::kPieces;
  const int end = (work.kv_end + kPieceKeys - 1) / kPieceKeys;
  const Finder<T> finder = {job, at, shared, PageIndex(args, work.kv_begin / kPieceKeys)};
  Place where[T::kPieces] = {};
#pragma unroll
  for (int b = 0; b < T::kPieces; ++b) {
    if (c + b < end) where[b] = finder.FindInTable(c + b);
  }
  const float scale_log2 = args.scale_log2 * ScaleOf(args.k_scale, head);
  // Keys of earlier steps are there already; those of this step only after the wait.
  const bool settled = c < end && min(c + T::kPieces, end) * kPieceKeys <= work.settled;
  if (settled) {
    LoadKeys<T>(job, at, where, end - c, chunk);
    LoadValues<T>(job, at, where, end - c, chunk);
  }
  for (uint32_t i = threadIdx.x;
       i < T::kPages && finder.first_page + i <= PageIndex(args, max(end, 1) - 1);
       i += T::kWarps * 32) {
    shared.pages[i] = LoadPage(at.table, finder.first_page + i);
  }
  WaitForPriorGrid();
  StartNextGrid();
  if (!settled) {
    LoadKeys<T>(job, at, where, end - c, chunk);
    LoadValues<T>(job, at, where, end - c, chunk);
  }
  uint4 q[T::kSteps];
  if constexpr (T::kQueriesInRegisters) {
#pragma unroll
    for (int p = 0; p < T::kSteps; ++p) q[p] = LoadQuery<T>(job, 0, p);
  } else {
    for (int i = warp; i < T::kTiles * T::kSteps; i += T::kWarps) {
      shared.q[i * 32 + index] = LoadQuery<T>(job, i / T::kSteps, i % T::kSteps);
    }
  }
  __syncthreads();

  // Up to this piece rows see all keys.
  const int unmasked = min(work.visible, work.kv_end) / kPieceKeys;
  Accumulator<T> acc;
  for (; c < end; c += kStride) {
    float s[T::kPieces][T::kTiles][4] = {};
#pragma unroll
    for (int b = 0; b < T::kPieces; ++b) {
#pragma unroll
      for (int p = 0; p < T::kSteps; ++p) {
#pragma unroll
        for (int n = 0; n < T::kTiles; ++n) {
          chunk.Score(b, p,
                      T::kQueriesInRegisters
                          ? q[p]
                          : LoadShared(&shared.q[(n * T::kSteps + p) * 32 + index]),
                      s[b][n]);
        }
      }
    }
    const int next = c + kStride;
    if (next < end) {
#pragma unroll
      for (int b = 0; b < T::kPieces; ++b) {
        if (next + b < end) where[b] = finder.Find(next + b);
      }
      LoadKeys<T>(job, at, where, end - next, chunk);
    }
    if (c + T::kPieces > unmasked) Mask<T>(job, c * kPieceKeys, s, chunk);
    acc.Weigh(scale_log2, s);
#pragma unroll
    for (int b = 0; b < T::kPieces; ++b) {
      uint32_t p[T::kTiles][2];
#pragma unroll
      for (int n = 0; n < T::kTiles; ++n) {
        p[n][0] = TransposeMatrix(Chunk<T>::Pack(s[b][n][0], s[b][n][1]));
        p[n][1] = TransposeMatrix(Chunk<T>::Pack(s[b][n][2], s[b][n][3]));
      }
      chunk.AddValues(b, p, acc.o);
    }
    if (next < end) LoadValues<T>(job, at, where, end - next, chunk);
  }
  Finish<T>(job, acc, shared);
}

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
