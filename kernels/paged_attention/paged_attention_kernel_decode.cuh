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

constexpr int kWarps = 4;
constexpr int kChunk = 16;  // keys

// Lane 4 g + t.
struct Lane {
  int g, t;
};

template <int kDim, int kTiles>
struct Traits {
  static constexpr int kSteps = kDim / 32;          // 16-byte loads of a lane along a key
  static constexpr int kHalves = (kDim + 63) / 64;  // and along a value; 96 half fills the second
  static constexpr int kRows = 8 * kTiles;
  static constexpr bool kQueriesInRegisters = kTiles == 1 && kDim <= 128;
  // Of a multiprocessor: 12 warps of up to 168 registers, 8 where a chunk takes more.
  static constexpr int kBlocks = kDim <= 128 ? 3 : 2;

  struct Shared {
    uint4 q[kQueriesInRegisters ? 1 : kTiles * kSteps * 32];  // as the lanes use them
    float2 stats[kWarps][kRows];
    float sums[kWarps][8][kDim + 4];
  };
};

// 16 keys and their values as they came from memory.
template <int kDim>
struct Chunk {
  uint4 k[2][kDim / 32];         // keys g and g + 8
  uint4 v[4][(kDim + 63) / 64];  // keys 2t, 2t + 1, 2t + 8, 2t + 9
};

// Where a block's chunks lie. Pages hold whole chunks.
struct Pages {
  const int32_t* table;
  Divisor chunks_per_page;
  int32_t last;  // page of the sequence; later ones are not read

  __device__ __forceinline__ int32_t Page(int chunk) const {
    return max(__ldg(table + min(chunks_per_page.Divide(chunk), last)), 0);
  }
  // First key of the chunk in its page.
  __device__ __forceinline__ int32_t Offset(int chunk) const {
    return (chunk - chunks_per_page.Divide(chunk) * chunks_per_page.n) * kChunk;
  }
};

template <int kDim>
__device__ __forceinline__ void LoadKeys(const __nv_bfloat16* rows, int64_t token, Lane lane,
                                         Chunk<kDim>& chunk) {
  const __nv_bfloat16* p = rows + lane.g * token + 8 * lane.t;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    chunk.k[0][i] = LoadStream(p + 32 * i);
    chunk.k[1][i] = LoadStream(p + 8 * token + 32 * i);
  }
}

template <int kDim>
__device__ __forceinline__ void LoadValues(const __nv_bfloat16* rows, int64_t token, Lane lane,
                                           Chunk<kDim>& chunk) {
  const __nv_bfloat16* p = rows + 2 * lane.t * token + 8 * lane.g;
#pragma unroll
  for (int h = 0; h < (kDim + 63) / 64; ++h) {
    const bool inside = 64 * h + 8 * lane.g < kDim;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat16* from = p + (i % 2 + i / 2 * 8) * token + 64 * h;
      chunk.v[i][h] = kDim % 64 == 0 || inside ? LoadStream(from) : uint4{};
    }
  }
}

__device__ __forceinline__ const uint32_t* Words(const uint4& v) {
  return reinterpret_cast<const uint32_t*>(&v);
}

// The running softmax of a warp: rows 8n + 2t and 8n + 2t + 1 of each tile n, output elements
// 64 h + 8 g + 2 j and the one after.
template <int kDim, int kTiles>
struct Accumulator {
  float o[kTiles][(kDim + 63) / 64 * 4][4] = {};
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
  __device__ __forceinline__ void AddValues(const Chunk<kDim>& chunk,
                                            const uint32_t (&p)[kTiles][2]) {
#pragma unroll
    for (int h = 0; h < (kDim + 63) / 64; ++h) {
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

// Scores of keys that a row does not see become -inf; values past the last key become 0, since a
// weight of 0 does not hide a NaN. `keys`: of the part that lie from the chunk's first on.
template <int kDim, int kTiles>
__device__ __forceinline__ void Mask(int keys, const int (&seen)[kTiles][2], Lane lane,
                                     float (&s)[kTiles][4], Chunk<kDim>& chunk) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (lane.g + i / 2 * 8 >= seen[n][i % 2]) s[n][i] = -INFINITY;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (2 * lane.t + i % 2 + i / 2 * 8 < keys) continue;
#pragma unroll
    for (auto& v : chunk.v[i]) v = {};
  }
}

// Joins the block's warps and writes the result: the output, or the part.
template <int kDim, int kTiles>
__device__ __forceinline__ void Finish(const PagedAttentionKernelArgs& args,
                                       const PagedAttentionWork& work, int head,
                                       Accumulator<kDim, kTiles>& acc,
                                       typename Traits<kDim, kTiles>::Shared& shared) {
  const int warp = threadIdx.x / 32;
  const Lane lane = {static_cast<int>(threadIdx.x) % 32 / 4, static_cast<int>(threadIdx.x) % 4};
  const PartialTile part = PartOf(args, work, head, work.part);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int x = 4; x < 32; x *= 2) acc.total[n][i] += __shfl_xor_sync(~0u, acc.total[n][i], x);
      if (lane.g == 0)
        shared.stats[warp][8 * n + 2 * lane.t + i] = {acc.top[n][i], acc.total[n][i]};
    }
    if (n > 0) __syncthreads();  // the tile before has been read
#pragma unroll
    for (int i = 0; i < (kDim + 63) / 64 * 4; ++i) {
      const int d = 64 * (i / 4) + 8 * lane.g + 2 * (i % 4);
      if (kDim % 64 != 0 && d >= kDim) continue;
      const float(&o)[4] = acc.o[n][i];
      *reinterpret_cast<float2*>(&shared.sums[warp][2 * lane.t][d]) = {o[0], o[2]};
      *reinterpret_cast<float2*>(&shared.sums[warp][2 * lane.t + 1][d]) = {o[1], o[3]};
    }
    __syncthreads();
    const int rows = min(8, work.queries * args.group - 8 * n);
    for (int e = threadIdx.x; e < rows * (kDim / 4); e += kWarps * 32) {
      const int r = e / (kDim / 4), d = e % (kDim / 4) * 4;
      float top = -INFINITY, total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) top = fmaxf(top, shared.stats[w][8 * n + r].x);
      const float base = top == -INFINITY ? 0 : top;
      float4 sum = {};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float weight = Exp2(shared.stats[w][8 * n + r].x - base);
        total += weight * shared.stats[w][8 * n + r].y;
        AddScaled(*reinterpret_cast<const float4*>(&shared.sums[w][r][d]), weight, sum);
      }
      if (work.parts == 1) {
        StoreScaled(sum, 1 / total, OutRow(args, work, head, 8 * n + r) + d);
        continue;
      }
      *reinterpret_cast<float4*>(part.sums + (8 * n + r) * kDim + d) = sum;
      if (d == 0) part.stats[8 * n + r] = {top, total};
    }
  }
}

template <int kDim, int kTiles>
__global__ void __launch_bounds__(kWarps * 32, (Traits<kDim, kTiles>::kBlocks))
    PagedDecode(const __grid_constant__ PagedAttentionKernelArgs args,
                const Divisor chunks_per_page) {
  using T = Traits<kDim, kTiles>;
  __shared__ typename T::Shared shared;
  const int warp = threadIdx.x / 32, index = threadIdx.x % 32;
  const Lane lane = {index / 4, index % 4};
  const int item = blockIdx.x / args.kv_heads, head = blockIdx.x % args.kv_heads;
  const PagedAttentionWork work = LoadWork(args.work + item);
  if (work.parts == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    return;
  }
  const Pages pages = {args.page_table + work.sequence * args.table_row, chunks_per_page,
                       chunks_per_page.Divide((work.kv_end - 1) / kChunk)};
  const auto* k_head = static_cast<const __nv_bfloat16*>(args.k_cache) + head * args.k_head;
  const auto* v_head = static_cast<const __nv_bfloat16*>(args.v_cache) + head * args.v_head;
  const auto keys_at = [&](int64_t page, int offset) {
    return k_head + page * args.k_page + offset * args.k_token;
  };
  const auto values_at = [&](int64_t page, int offset) {
    return v_head + page * args.v_page + offset * args.v_token;
  };

  Chunk<kDim> chunk;
  int c = work.kv_begin / kChunk + warp;
  const int end = (work.kv_end + kChunk - 1) / kChunk;
  int32_t page = pages.Page(c), next_page = pages.Page(c + kWarps);
  // Keys of earlier steps are there already; those of this step only after the wait.
  const bool settled = c < end && (c + 1) * kChunk <= work.settled;
  if (settled) {
    LoadKeys(keys_at(page, pages.Offset(c)), args.k_token, lane, chunk);
    LoadValues(values_at(page, pages.Offset(c)), args.v_token, lane, chunk);
  }
  WaitForPriorGrid();
  StartNextGrid();
  if (!settled && c < end) {
    LoadKeys(keys_at(page, pages.Offset(c)), args.k_token, lane, chunk);
    LoadValues(values_at(page, pages.Offset(c)), args.v_token, lane, chunk);
  }

  const int rows = work.queries * args.group;
  const auto query = [&](int n, int p) {
    const int r = min(8 * n + lane.g, rows - 1);
    const auto* q = static_cast<const __nv_bfloat16*>(args.q) +
                    (work.token + r / args.group) * args.q_token +
                    (head * args.group + r % args.group) * args.q_head;
    return __ldg(reinterpret_cast<const uint4*>(q + 32 * p + 8 * lane.t));
  };
  uint4 q[T::kSteps];
  if constexpr (T::kQueriesInRegisters) {
#pragma unroll
    for (int p = 0; p < T::kSteps; ++p) q[p] = query(0, p);
  } else {
    for (int i = warp; i < kTiles * T::kSteps; i += kWarps) {
      shared.q[i * 32 + index] = query(i / T::kSteps, i % T::kSteps);
    }
    __syncthreads();
  }
  int visible[kTiles][2];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      visible[n][i] = work.visible + (8 * n + 2 * lane.t + i) / args.group;
    }
  }

  const float scale_log2 = args.scale * kLog2E;
  Accumulator<kDim, kTiles> acc;
  for (; c < end; c += kWarps) {
    float s[kTiles][4] = {};
#pragma unroll
    for (int p = 0; p < T::kSteps; ++p) {
      const uint4 k0 = chunk.k[0][p], k1 = chunk.k[1][p];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 b = T::kQueriesInRegisters ? q[p] : shared.q[(n * T::kSteps + p) * 32 + index];
        MmaBf16(s[n], k0.x, k1.x, k0.y, k1.y, b.x, b.y);
        MmaBf16(s[n], k0.z, k1.z, k0.w, k1.w, b.z, b.w);
      }
    }
    const int next = c + kWarps;
    if (next < end) LoadKeys(keys_at(next_page, pages.Offset(next)), args.k_token, lane, chunk);
    if ((c + 1) * kChunk > work.visible) {
      int seen[kTiles][2];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        seen[n][0] = visible[n][0] - c * kChunk;
        seen[n][1] = visible[n][1] - c * kChunk;
      }
      Mask(work.kv_end - c * kChunk, seen, lane, s, chunk);
    }
    uint32_t p[kTiles][2];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      acc.Weigh(n, scale_log2, s[n]);
      p[n][0] = TransposeMatrix(PackBf16(s[n][0], s[n][1]));
      p[n][1] = TransposeMatrix(PackBf16(s[n][2], s[n][3]));
    }
    acc.AddValues(chunk, p);
    if (next < end) {
      LoadValues(values_at(next_page, pages.Offset(next)), args.v_token, lane, chunk);
      next_page = pages.Page(next + kWarps);
    }
  }
  Finish<kDim, kTiles>(args, work, head, acc, shared);
  if (work.parts > 1 && IsLastPart(args, work, head)) JoinParts(args, work, head);
}

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_CUH_
