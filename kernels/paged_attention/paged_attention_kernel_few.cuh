// Decode of few sequences: up to 8 query rows of a kv head, head size 128, bf16, on sm_90. See
// README.md, "Few sequences on Hopper".
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CUH_

#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"

namespace millrace::few {

constexpr int kChunk = 16;  // keys
constexpr int kDim = 128;
constexpr int kRows = 8;
constexpr int kSteps = kDim / 32;          // 16-byte loads of a lane along a key
constexpr int kBytes = kChunk * kDim * 2;  // of a chunk's keys

// One chunk's place each: 64 KiB, so that the next call's block fits beside this one's.
constexpr int kWarps = 8;
// Warps of a block whose first chunks are on their way at once while the call before this one still
// runs. More make its own reads and writes wait behind them (README.md).
constexpr int kAtOnce = 1;

struct Stage {
  // Two halves of 64 elements, 16 rows of 128 bytes each, whose 16 bytes lie swizzled.
  unsigned char k[kBytes], v[kBytes];
};
constexpr int kPadded = kDim + 4;
struct Shared {
  // A warp's sums take the place of its chunk.
  Stage stage[kWarps];
  float2 warp_stats[kWarps][kRows];
  uint64_t k_full[kWarps], v_full[kWarps];
  uint64_t released;  // the call before this one has ended
};
static_assert(kRows * kPadded * sizeof(float) <= sizeof(Stage));

struct Maps {
  CUtensorMap k, v;
};

// Lane 4 g + t.
struct Lane {
  int g, t;
};

// The key of a chunk that stands for index i < 8 of the matrix instructions (and 8 more for 8
// more). Neighbours lie 4 rows apart: their halves of 128 bytes, swizzled, are in different banks.
__device__ __forceinline__ int KeyOf(int i) { return (i >> 1) | (i & 1) << 2; }

// Where 16 bytes of a row lie.
__device__ __forceinline__ int Offset(int row, int sixteen) {
  return sixteen / 8 * (kBytes / 2) + row * 128 + ((sixteen % 8) ^ (row % 8)) * 16;
}

// A warp's chunks: from the cache into its stage.
struct Feed {
  const PagedAttentionKernelArgs& args;
  const Maps& maps;
  Shared& shared;
  const int32_t* table;
  int head, warp, lane;
  int first, count;  // chunk, and how many, kWarps apart
  int32_t page;      // of 32 chunks in turn, one a lane

  __device__ __forceinline__ int Chunk(int i) const { return first + i * kWarps; }

  __device__ __forceinline__ uint32_t PageIndex(int chunk) const {
    return __umulhi(2 * static_cast<uint32_t>(chunk), args.piece_reciprocal);
  }

  // Entries past a sequence's end are -1, which this never sees but for a wrong plan.
  __device__ __forceinline__ void LoadPages(int i) {
    page = i + lane < count ? max(__ldg(table + PageIndex(Chunk(i + lane))), 0) : 0;
  }

  // Where chunk i lies: token of the page, head, page.
  __device__ __forceinline__ int3 Find(int i) {
    if (i % 32 == 0 && i > 0) LoadPages(i);
    const int chunk = Chunk(i);
    const int in_page = chunk - static_cast<int>(PageIndex(chunk) * args.pieces_per_page);
    return {in_page * kChunk, head, __shfl_sync(~0u, page, i % 32)};
  }

  __device__ __forceinline__ void LoadKeys(int3 at) {
    if (lane != 0) return;
    ArriveExpect(&shared.k_full[warp], kBytes);
    LoadBox5(shared.stage[warp].k, maps.k, &shared.k_full[warp], at);
  }
  __device__ __forceinline__ void LoadValues(int3 at) {
    if (lane != 0) return;
    ArriveExpect(&shared.v_full[warp], kBytes);
    LoadBox5(shared.stage[warp].v, maps.v, &shared.v_full[warp], at);
  }
};

// The running softmax of a warp: rows 2t and 2t + 1, output elements 16 n + g and 8 more.
struct Softmax {
  float o[kDim / 16][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};

  // A row that has seen no key yet has maximum -inf, from which nothing can be subtracted.
  static __device__ __forceinline__ float Base(float top) { return top == -INFINITY ? 0 : top; }

  // Scores, already masked, become weights: relative to `top`, which follows the maximum only where
  // that outgrows it by kSlack, so that the sums are seldom rescaled. In powers of two.
  __device__ __forceinline__ void Weigh(float scale_log2, float (&s)[4]) {
    constexpr float kSlack = 8;
    float most[2];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      most[i] = fmaxf(s[i], s[i + 2]) * scale_log2;
      grown |= most[i] > top[i] + kSlack;
    }
    if (__any_sync(~0u, grown)) Rescale(most);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] = Exp2(fmaf(s[i], scale_log2, -Base(top[i % 2])));
      total[i % 2] += s[i];
    }
  }

  // Raises the tops to what any lane of the row has.
  __device__ __forceinline__ void Rescale(float (&most)[2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m = most[i];
#pragma unroll
      for (int x = 4; x < 32; x *= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, x));
      m = fmaxf(m, top[i]);
      const float by = Exp2(top[i] - Base(m));
      top[i] = m;
      total[i] *= by;
#pragma unroll
      for (auto& part : o) {
        part[i] *= by;
        part[i + 2] *= by;
      }
    }
  }
};

// The query of row r of the tile.
__device__ __forceinline__ const __nv_bfloat16* QueryRow(const PagedAttentionKernelArgs& args,
                                                         const PagedAttentionWork& work, int head,
                                                         int r) {
  return static_cast<const __nv_bfloat16*>(args.q) + (work.token + r / args.group) * args.q_token +
         (head * args.group + r % args.group) * args.q_head;
}

// Into the L2, whatever the launch ahead may yet make of them there.
__device__ __forceinline__ void PrefetchQueries(const PagedAttentionKernelArgs& args,
                                                const PagedAttentionWork& work, int head, int i) {
  constexpr int kLine = 64;  // elements
  if (i >= work.queries * args.group * (kDim / kLine)) return;
  const auto* line = QueryRow(args, work, head, i / (kDim / kLine)) + i % (kDim / kLine) * kLine;
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

// The rows' queries: elements 32 p + 8 t and on of row g.
__device__ __forceinline__ void LoadQueries(const PagedAttentionKernelArgs& args,
                                            const PagedAttentionWork& work, int head, Lane lane,
                                            uint4 (&q)[kSteps]) {
  const int r = min(lane.g, work.queries * args.group - 1);
  const __nv_bfloat16* row = QueryRow(args, work, head, r) + 8 * lane.t;
#pragma unroll
  for (int p = 0; p < kSteps; ++p) q[p] = LoadInPlace(row + 32 * p);
}

// S^T = K Q^T of a chunk. A lane uses 16 bytes of a key as four operand registers: step p of S
// pairs element 32 p + 8 t + i of a key with the same element of the query.
__device__ __forceinline__ void Scores(const unsigned char* k, Lane lane, const uint4 (&q)[kSteps],
                                       float (&s)[4]) {
  const int row = KeyOf(lane.g);
  float odd[4] = {};
#pragma unroll
  for (int p = 0; p < kSteps; ++p) {
    const auto k0 = *reinterpret_cast<const uint4*>(k + Offset(row, 4 * p + lane.t));
    const auto k1 = *reinterpret_cast<const uint4*>(k + Offset(row + 8, 4 * p + lane.t));
    MmaBf16(s, k0.x, k1.x, k0.y, k1.y, q[p].x, q[p].y);
    MmaBf16(odd, k0.z, k1.z, k0.w, k1.w, q[p].z, q[p].w);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] += odd[i];
}

// Scores of keys that a row does not see become -inf. `first`: key of the chunk.
__device__ __forceinline__ void Mask(const PagedAttentionWork& work, int group, int first,
                                     Lane lane, float (&s)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int visible = work.visible + (2 * lane.t + i % 2) / group;
    if (first + KeyOf(lane.g) + i / 2 * 8 >= visible) s[i] = -INFINITY;
  }
}

// Values of a chunk past its first `keys` become 0: a weight of 0 does not hide a NaN.
__device__ __forceinline__ void ClearValues(unsigned char* v, int keys, int lane) {
  for (int i = lane; i < kBytes / 16; i += 32) {
    if (i / 8 % kChunk >= keys) *reinterpret_cast<uint4*>(v + 16 * i) = {};
  }
  __syncwarp();
}

// O^T += V^T P^T.
__device__ __forceinline__ void AddValues(const unsigned char* v, int lane, const float (&s)[4],
                                          Softmax& softmax) {
  const uint32_t p0 = TransposeMatrix(PackBf16(s[0], s[1]));
  const uint32_t p1 = TransposeMatrix(PackBf16(s[2], s[3]));
  const int row = KeyOf(lane % 8) + lane / 16 * 8;
#pragma unroll
  for (int n = 0; n < kDim / 16; ++n) {
    uint32_t a[4];
    LoadMatricesTransposed(v + Offset(row, 2 * n + lane / 8 % 2), a);
    MmaBf16(softmax.o[n], a[0], a[1], a[2], a[3], p0, p1);
  }
}

// Leaves the warp's rows in shared memory.
__device__ __forceinline__ void StoreWarp(Shared& shared, int warp, Lane lane, int rows,
                                          Softmax& softmax) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int x = 4; x < 32; x *= 2) softmax.total[i] += __shfl_xor_sync(~0u, softmax.total[i], x);
    if (lane.g == 0) shared.warp_stats[warp][2 * lane.t + i] = {softmax.top[i], softmax.total[i]};
  }
  if (2 * lane.t >= rows) return;
  float* sums = reinterpret_cast<float*>(&shared.stage[warp]) + 2 * lane.t * kPadded + lane.g;
#pragma unroll
  for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i % 2 * kPadded + 16 * n + i / 2 * 8] = softmax.o[n][i];
    }
  }
}

// What a block works on.
struct Job {
  const PagedAttentionKernelArgs& args;
  const PagedAttentionWork& work;
  int head;
};

// Row r joined from the parts of all blocks, in order. A lane weighs some of the parts and sums
// four elements.
__device__ __forceinline__ void JoinRow(const Job& job, int r) {
  const auto& [args, work, head] = job;
  constexpr int kBatch = 16;
  const int lane = threadIdx.x % 32;
  const PartialTile first = PartOf(args, work, head, 0);
  // From a part to the next, in floats.
  const int64_t step = static_cast<int64_t>(args.kv_heads) * args.tile_rows * (kDim + 2);
  const float* stats = reinterpret_cast<const float*>(first.stats + r);
  const float* sums = first.sums + r * kDim + 4 * lane;
  float2 part[kMaxParts / 32];
#pragma unroll
  for (int i = 0; i < kMaxParts / 32; ++i) {
    const int p = lane + 32 * i;
    part[i] = {-INFINITY, 0};
    if (p < work.parts) part[i] = __ldcg(reinterpret_cast<const float2*>(stats + p * step));
  }
  float4 batch[kBatch];
  const auto load = [&](int begin) {
#pragma unroll
    for (int p = 0; p < kBatch; ++p) {
      batch[p] = begin + p < work.parts
                     ? __ldcg(reinterpret_cast<const float4*>(sums + (begin + p) * step))
                     : float4{};
    }
  };
  load(0);  // on its way while the parts are weighed
  float top = -INFINITY, total = 0;
#pragma unroll
  for (const float2& x : part) top = fmaxf(top, x.x);
#pragma unroll
  for (int x = 16; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, x));
  const float base = Softmax::Base(top);
#pragma unroll
  for (float2& x : part) {
    x.x = Exp2(x.x - base);
    total += x.x * x.y;
  }
#pragma unroll
  for (int x = 16; x > 0; x /= 2) total += __shfl_xor_sync(~0u, total, x);
  float4 sum = {};
#pragma unroll
  for (int begin = 0; begin < kMaxParts; begin += kBatch) {
    if (begin >= work.parts) break;
    if (begin > 0) load(begin);
#pragma unroll
    for (int p = 0; p < kBatch; ++p) {
      AddScaled(batch[p], __shfl_sync(~0u, part[begin / 32].x, (begin + p) % 32), sum);
    }
  }
  StoreScaled(sum, 1 / total, OutRow(args, work, head, r) + 4 * lane);
}

// Called by the warp that wrote row r of the block's part. True in the one that came last, which
// sees that row of all parts. Rows are counted on their own, so that no warp waits for another:
// four to a counter, which the tile has at least two of.
__device__ __forceinline__ bool IsLastPart(const Job& job, int r) {
  static_assert(kMaxParts < 256 && kRows <= 8);
  const auto& [args, work, head] = job;
  const int shift = r % 4 * 8;
  bool last = false;
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    int32_t* arrivals =
        args.arrivals + static_cast<int64_t>(work.slot + r / 4) * args.kv_heads + head;
    last = (CountArrival(arrivals, 1 << shift) >> shift & 255) == work.parts - 1;
    if (last) atomicSub(arrivals, work.parts << shift);
  }
  last = __shfl_sync(~0u, last, 0);
  __syncwarp();
  return last;
}

// By one warp: joins row r of the block's first `warps` warps, and where the tile has more parts,
// leaves the part; the warp that is the last to do so for this row joins them.
__device__ __forceinline__ void FinishRow(const Job& job, const Shared& shared, int r, int warps) {
  const auto& [args, work, head] = job;
  const int lane = threadIdx.x % 32;
  float2 stats[kWarps];
  float top = -INFINITY, total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    stats[w] = w < warps ? shared.warp_stats[w][r] : float2{-INFINITY, 0};
    top = fmaxf(top, stats[w].x);
  }
  const float base = Softmax::Base(top);
  float4 sum = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w >= warps) continue;
    const float weight = Exp2(stats[w].x - base);
    const float* sums = reinterpret_cast<const float*>(&shared.stage[w]) + r * kPadded;
    total += weight * stats[w].y;
    AddScaled(*reinterpret_cast<const float4*>(sums + 4 * lane), weight, sum);
  }
  if (work.parts == 1) {
    StoreScaled(sum, 1 / total, OutRow(args, work, head, r) + 4 * lane);
    return;
  }
  const PartialTile part = PartOf(args, work, head, work.part);
  *reinterpret_cast<float4*>(part.sums + r * kDim + 4 * lane) = sum;
  if (lane == 0) part.stats[r] = {top, total};
  if (IsLastPart(job, r)) JoinRow(job, r);
}

// Asks for the warp's first chunk, keys of earlier steps, before the call ahead has ended: in turn
// with the block's other warps, unless that end comes first.
__device__ __forceinline__ void AskEarly(Feed& feed) {
  Shared& shared = feed.shared;
  if (feed.warp >= kAtOnce) {
    uint64_t* ahead = &shared.v_full[feed.warp - kAtOnce];
    while (!TestWait(ahead, 0) && !TestWait(&shared.released, 0)) __nanosleep(40);
  }
  const int3 at = feed.Find(0);
  feed.LoadKeys(at);
  feed.LoadValues(at);
}

__global__ void __launch_bounds__(kWarps * 32, 2)
    PagedDecodeFew(const __grid_constant__ PagedAttentionKernelArgs args,
                   const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const int warp = threadIdx.x / 32, index = threadIdx.x % 32;
  const Lane lane = {index / 4, index % 4};
  const int item = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  const int begin = work.kv_begin / kChunk, chunks = (work.kv_end + kChunk - 1) / kChunk - begin;
  Feed feed = {args,
               maps,
               shared,
               args.page_table + work.sequence * args.table_row,
               head,
               warp,
               index,
               begin + warp,
               (chunks - warp + kWarps - 1) / kWarps,
               0};
  feed.LoadPages(0);
  if (index == 0) {
    InitBarrier(&shared.k_full[warp], 1);
    InitBarrier(&shared.v_full[warp], 1);
    if (warp == 0) InitBarrier(&shared.released, 1);
    FenceBarrierInit();
  }
  __syncthreads();
  if (warp == kWarps - 1) PrefetchQueries(args, work, head, index);
  const bool settled = (feed.Chunk(0) + 1) * kChunk <= work.settled;
  if (feed.count > 0 && settled) AskEarly(feed);
  WaitForPriorGrid();
  StartNextGrid();
  if (threadIdx.x == 0) Arrive(&shared.released);
  uint4 q[kSteps];
  LoadQueries(args, work, head, lane, q);
  if (feed.count > 0 && !settled) {
    const int3 at = feed.Find(0);
    feed.LoadKeys(at);
    feed.LoadValues(at);
  }

  Softmax softmax;
  Stage& stage = shared.stage[warp];
  for (int i = 0; i < feed.count; ++i) {
    const int key = feed.Chunk(i) * kChunk;
    float s[4] = {};
    Wait(&shared.k_full[warp], i % 2);
    Scores(stage.k, lane, q, s);
    const bool more = i + 1 < feed.count;
    int3 next = {};
    __syncwarp();
    if (more) {
      next = feed.Find(i + 1);
      feed.LoadKeys(next);
    }
    if (key + kChunk > work.visible) Mask(work, args.group, key, lane, s);
    softmax.Weigh(args.scale_log2, s);
    Wait(&shared.v_full[warp], i % 2);
    if (key + kChunk > work.kv_end) ClearValues(stage.v, work.kv_end - key, index);
    AddValues(stage.v, index, s, softmax);
    __syncwarp();
    if (more) feed.LoadValues(next);
  }

  const int rows = work.queries * args.group;
  if (feed.count > 0) StoreWarp(shared, warp, lane, rows, softmax);
  __syncthreads();
  const Job job = {args, work, head};
  for (int r = warp; r < rows; r += kWarps) FinishRow(job, shared, r, min(chunks, kWarps));
#endif
}

}  // namespace millrace::few

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CUH_
