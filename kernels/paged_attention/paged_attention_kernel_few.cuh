// Decode of few sequences: up to 8 query rows of a kv head, head size 128, bf16 on a cache of bf16
// or codes, on sm_90. See README.md, "Few sequences on Hopper".
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_FEW_CUH_

#include "kernels/paged_attention/paged_attention_kernel_few_cache.cuh"
#include "kernels/paged_attention/paged_attention_kernel_join.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"

namespace millrace::few {

// 8 KiB each on their way: 64 KiB, so that the next call's block fits beside this one's.
constexpr int kWarps = 8;
constexpr int kPadded = kDim + 4;

template <typename Cache>
struct SharedOf {
  static constexpr int kDepth = Cache::kDepth;
  struct Stage {
    unsigned char k[Cache::kBytes], v[Cache::kBytes];
  };
  // A warp's sums take the place of its chunks.
  Stage ring[kWarps][kDepth];
  float2 warp_stats[kWarps][kRows];
  uint64_t k_full[kWarps][kDepth], v_full[kWarps][kDepth];
  uint64_t released;  // the call before this one has ended

  __device__ __forceinline__ float* Sums(int warp, int row) {
    return reinterpret_cast<float*>(&ring[warp]) + row * kPadded;
  }
};

struct Maps {
  CUtensorMap k, v;
};

// A warp's chunks: from the cache into its part of the ring.
template <typename Cache>
struct Feed {
  static constexpr int kDepth = Cache::kDepth;
  const PagedAttentionKernelArgs& args;
  const Maps& maps;
  SharedOf<Cache>& shared;
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

  __device__ __forceinline__ void LoadKeys(int i, int3 at) {
    if (lane != 0) return;
    uint64_t* full = &shared.k_full[warp][i % kDepth];
    ArriveExpect(full, Cache::kBytes);
    LoadBox5(shared.ring[warp][i % kDepth].k, maps.k, full, at);
  }
  __device__ __forceinline__ void LoadValues(int i, int3 at) {
    if (lane != 0) return;
    uint64_t* full = &shared.v_full[warp][i % kDepth];
    ArriveExpect(full, Cache::kBytes);
    LoadBox5(shared.ring[warp][i % kDepth].v, maps.v, full, at);
  }
  __device__ __forceinline__ void Load(int i) {
    const int3 at = Find(i);
    LoadKeys(i, at);
    LoadValues(i, at);
  }

  // Asks for the first chunks, as far as they hold keys of earlier steps, before the call ahead has
  // ended: in turn with the block's other warps, of which kAtOnce have theirs on their way, for
  // more would make that call's last reads and writes wait behind them (README.md); unless its end
  // comes first. Returns how many.
  __device__ __forceinline__ int AskEarly(int settled_keys) {
    const int most = min(kDepth, count);
    if (most <= 0 || (Chunk(0) + 1) * kChunk > settled_keys) return 0;
    if (warp >= Cache::kAtOnce) {
      uint64_t* ahead = &shared.v_full[warp - Cache::kAtOnce][0];
      while (!TestWait(ahead, 0) && !TestWait(&shared.released, 0)) __nanosleep(40);
    }
    int asked = 0;
    for (; asked < most && (Chunk(asked) + 1) * kChunk <= settled_keys; ++asked) Load(asked);
    return asked;
  }
};

// A row that has seen no key yet has maximum -inf, from which nothing can be subtracted.
__device__ __forceinline__ float BaseOf(float top) { return top == -INFINITY ? 0 : top; }

// The running softmax of a warp: rows 2t and 2t + 1, output elements Cache::Column(n, g) and
// kApart more.
template <typename Cache>
struct Softmax {
  float o[kResults][4] = {};
  float top[2] = {-INFINITY, -INFINITY};
  float total[2] = {};

  // Scores, already masked, become weights: relative to `top`, which follows the maximum, less the
  // headroom, only where that outgrows it by kSlack, so that the sums are seldom rescaled. In
  // powers of two.
  __device__ __forceinline__ void Weigh(float scale_log2, float (&s)[4]) {
    constexpr float kSlack = 8 + Cache::kHeadroom;
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
      s[i] = Exp2(fmaf(s[i], scale_log2, -BaseOf(top[i % 2])));
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
      m = fmaxf(m - Cache::kHeadroom, top[i]);
      const float by = Exp2(top[i] - BaseOf(m));
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

// The queries of row g.
template <typename Cache>
__device__ __forceinline__ void LoadQueries(const PagedAttentionKernelArgs& args,
                                            const PagedAttentionWork& work, int head, Lane lane,
                                            uint4 (&q)[kSteps]) {
  const int r = min(lane.g, work.queries * args.group - 1);
  const __nv_bfloat16* row = QueryRow(args, work, head, r);
#pragma unroll
  for (int p = 0; p < kSteps; ++p) {
    q[p] = Cache::Query(LoadInPlace(row + Cache::QueryColumn(p, lane)));
  }
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
template <typename Cache>
__device__ __forceinline__ void ClearValues(unsigned char* v, int keys, int lane) {
  for (int i = lane; i < Cache::kBytes / 16; i += 32) {
    if (i / 8 % kChunk >= keys) *reinterpret_cast<uint4*>(v + 16 * i) = {};
  }
  __syncwarp();
}

// Leaves the warp's rows in shared memory.
template <typename Cache>
__device__ __forceinline__ void StoreWarp(SharedOf<Cache>& shared, int warp, Lane lane, int rows,
                                          Softmax<Cache>& softmax) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int x = 4; x < 32; x *= 2) softmax.total[i] += __shfl_xor_sync(~0u, softmax.total[i], x);
    if (lane.g == 0) shared.warp_stats[warp][2 * lane.t + i] = {softmax.top[i], softmax.total[i]};
  }
  if (2 * lane.t >= rows) return;
#pragma unroll
  for (int n = 0; n < kResults; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = Cache::Column(n, lane.g) + i / 2 * Cache::kApart;
      shared.Sums(warp, 2 * lane.t + i % 2)[column] = softmax.o[n][i];
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
  const float v_scale = ScaleOf(args.v_scale, head);
  float top = -INFINITY, total = 0;
#pragma unroll
  for (const float2& x : part) top = fmaxf(top, x.x);
#pragma unroll
  for (int x = 16; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, x));
  const float base = BaseOf(top);
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
  StoreScaled(sum, v_scale / total, OutRow(args, work, head, r) + 4 * lane);
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
template <typename Cache>
__device__ __forceinline__ void FinishRow(const Job& job, SharedOf<Cache>& shared, int r,
                                          int warps) {
  const auto& [args, work, head] = job;
  const int lane = threadIdx.x % 32;
  float2 stats[kWarps];
  float top = -INFINITY, total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    stats[w] = w < warps ? shared.warp_stats[w][r] : float2{-INFINITY, 0};
    top = fmaxf(top, stats[w].x);
  }
  const float base = BaseOf(top);
  float4 sum = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w >= warps) continue;
    const float weight = Exp2(stats[w].x - base);
    total += weight * stats[w].y;
    AddScaled(*reinterpret_cast<const float4*>(shared.Sums(w, r) + 4 * lane), weight, sum);
  }
  if (work.parts == 1) {
    StoreScaled(sum, ScaleOf(args.v_scale, head) / total, OutRow(args, work, head, r) + 4 * lane);
    return;
  }
  const PartialTile part = PartOf(args, work, head, work.part);
  *reinterpret_cast<float4*>(part.sums + r * kDim + 4 * lane) = sum;
  if (lane == 0) part.stats[r] = {top, total};
  if (IsLastPart(job, r)) JoinRow(job, r);
}

template <typename Cache>
__global__ void __launch_bounds__(kWarps * 32, 2)
    PagedDecodeFew(const __grid_constant__ PagedAttentionKernelArgs args,
                   const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char memory[];
  using Shared = SharedOf<Cache>;
  static_assert(kRows * kPadded * sizeof(float) <= sizeof(Shared::ring[0]));
  constexpr int kDepth = Cache::kDepth;
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
  Feed<Cache> feed = {args,
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
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      InitBarrier(&shared.k_full[warp][i], 1);
      InitBarrier(&shared.v_full[warp][i], 1);
    }
    if (warp == 0) InitBarrier(&shared.released, 1);
    FenceBarrierInit();
  }
  __syncthreads();
  if (warp == kWarps - 1) PrefetchQueries(args, work, head, index);
  const float scale_log2 = args.scale_log2 * ScaleOf(args.k_scale, head);
  int asked = feed.AskEarly(work.settled);
  WaitForPriorGrid();
  StartNextGrid();
  if (threadIdx.x == 0) Arrive(&shared.released);
  uint4 q[kSteps];
  LoadQueries<Cache>(args, work, head, lane, q);
  for (; asked < min(kDepth, feed.count); ++asked) feed.Load(asked);

  Softmax<Cache> softmax;
  for (int i = 0; i < feed.count; ++i) {
    const int stage = i % kDepth, key = feed.Chunk(i) * kChunk;
    const uint32_t parity = i / kDepth % 2;
    unsigned char* v = shared.ring[warp][stage].v;
    float s[4] = {};
    Wait(&shared.k_full[warp][stage], parity);
    Cache::Score(shared.ring[warp][stage].k, lane, q, s);
    const bool more = i + kDepth < feed.count;
    int3 next = {};
    // All lanes' keys have been multiplied, as below their values: in the machine code (nvcc 13.0)
    // the products, which wait for their loads, come before the next copy into their place.
    __syncwarp();
    if (more) {
      next = feed.Find(i + kDepth);
      feed.LoadKeys(i + kDepth, next);
    }
    if (key + kChunk > work.visible) Mask(work, args.group, key, lane, s);
    softmax.Weigh(scale_log2, s);
    Wait(&shared.v_full[warp][stage], parity);
    if (key + kChunk > work.kv_end) ClearValues<Cache>(v, work.kv_end - key, index);
    const uint32_t p0 = TransposeMatrix(Cache::Pack(s[0], s[1]));
    const uint32_t p1 = TransposeMatrix(Cache::Pack(s[2], s[3]));
    Cache::AddValues(v, index, p0, p1, softmax.o);
    __syncwarp();
    if (more) feed.LoadValues(i + kDepth, next);
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
