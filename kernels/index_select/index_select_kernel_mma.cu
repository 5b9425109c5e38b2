// Scores of 64 heads of 128 channels on tensor cores: bf16 keys by bf16 queries (which those of
// serving numerics are after rounding), products exact, sums in f32. Two kernels:
//
// IndexQueriesMma: a warp per head and token writes the query as the other kernel wants it in
// shared memory, through the Hadamard matrix and FP4 where asked for, and its weight times the
// scale.
//
// IndexScoresMma: grid (runs, tiles of tokens); a block copies the queries of its tokens, and each
// warp takes 32 entries at a time, whose keys it loads once for all tokens of a sequence, straight
// into registers: the lane that multiplies channels 2t, 2t + 1, ... loads eight neighbouring ones
// instead and the queries are read in the same order, for a product does not care how its channels
// are called. A score is summed over a lane's heads, then over the four lanes of a row: it depends
// on its token and key alone. Bound by the tensor cores for tiles of tokens, by the keys for single
// tokens.
#include "kernels/index_select/index_select_kernel.cuh"
#include "kernels/index_select/index_select_kernel.h"
#include "kernels/latent_cache/hadamard_fp4.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kHeads = kIndexMmaHeads, kDim = kIndexMmaDim;
constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kWarpEntries = 32;
static_assert(kWarps * kWarpEntries == kIndexMmaTile);
constexpr int kGroups = kDim / 32;  // of channels: 8 of each of the four lanes of a row
constexpr int kRowChunks = kDim / 8;
constexpr int kHeadTile = 8;
constexpr int kHeadTilesTogether = 2;  // independent sums: a product waits for the one before it

// Queries of a token, in the workspace and in shared memory: 16 bytes a chunk, odd heads with their
// halves of 64 bytes swapped, so that two rows by four chunks are in different banks.
struct TokenQueries {
  uint4 chunks[kHeads][kRowChunks];
  float weights[kHeads];

  static __device__ __forceinline__ int Place(int head, int chunk) {
    return chunk ^ ((head & 1) << 2);
  }
};
static_assert(sizeof(TokenQueries) == kIndexMmaQueryFloats * sizeof(float));

__device__ __forceinline__ TokenQueries* QueriesOf(const IndexSelectKernelArgs& args, int place) {
  return reinterpret_cast<TokenQueries*>(args.queries) + place;
}

// Keys of 32 entries: rows g, g + 8, g + 16, g + 24 (g = lane / 4), of each 32 channels eight.
struct WarpKeys {
  uint4 rows[4][kGroups];
};

__device__ __forceinline__ Floats<4> LoadFour(const void* from, bool bf16, int64_t i) {
  if (!bf16) {
    const float4 x = *reinterpret_cast<const float4*>(static_cast<const float*>(from) + i);
    return {x.x, x.y, x.z, x.w};
  }
  const uint2 x = *reinterpret_cast<const uint2*>(static_cast<const __nv_bfloat16*>(from) + i);
  return {__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u),
          __uint_as_float(x.y << 16), __uint_as_float(x.y & 0xffff0000u)};
}

__global__ void __launch_bounds__(kThreads)
    IndexQueriesMma(const __grid_constant__ IndexSelectKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int lane = static_cast<int>(threadIdx.x % 32), place = static_cast<int>(blockIdx.y);
  const int n = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int64_t token = int64_t{args.first_token} + place;
  TokenQueries& to = *QueriesOf(args, place);
  if (lane == 0) {
    const float weight =
        ElementAt(args.weights, args.weights_bf16, token * args.weights_stride + n);
    to.weights[n] = __fmul_rn(weight, args.scale);
  }
  Floats<4> x = LoadFour(args.q, args.q_bf16,
                         token * args.q_token_stride + n * args.q_head_stride + 4 * lane);
  if (args.hadamard_fp4) {
    HadamardOfFours(kDim, lane, nullptr, &x);
    RoundHadamardFp4(kDim, &x);
  }
  uint2* const chunk = reinterpret_cast<uint2*>(&to.chunks[n][TokenQueries::Place(n, lane / 2)]);
  chunk[lane % 2] = make_uint2(PackBf16(x.v[0], x.v[1]), PackBf16(x.v[2], x.v[3]));
}
static_assert(kHeads % kWarps == 0);

// Starts copying; a thread's own part.
__device__ __forceinline__ void CopyQueries(const TokenQueries* from, TokenQueries* to) {
  constexpr int kChunks = sizeof(TokenQueries) / sizeof(uint4);
  for (int i = static_cast<int>(threadIdx.x); i < kChunks; i += kThreads) {
    CopyAsync(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(from) + i, true);
  }
}

// `offset`: of the key of entry `lane`, -1 for none, whose products are zeros.
__device__ __forceinline__ void LoadKeys(const IndexSelectKernelArgs& args, int64_t offset,
                                         WarpKeys* keys) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t row = __shfl_sync(0xffffffffu, offset, lane / 4 + 8 * r);
    const __nv_bfloat16* const from =
        static_cast<const __nv_bfloat16*>(args.keys) + row + lane % 4 * 8;
#pragma unroll
    for (int s = 0; s < kGroups; ++s) {
      keys->rows[r][s] =
          row < 0 ? make_uint4(0, 0, 0, 0) : *reinterpret_cast<const uint4*>(from + s * 32);
    }
  }
}

// Eight heads by 32 entries: dots[m] has rows of entries 16 m and on.
__device__ __forceinline__ void MultiplyGroup(const WarpKeys& keys, int s, const uint4& q,
                                              float (&dots)[2][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const uint4 &low = keys.rows[2 * m][s], &high = keys.rows[2 * m + 1][s];
    MmaBf16(dots[m], low.x, high.x, low.y, high.y, q.x, q.y);
    MmaBf16(dots[m], low.z, high.z, low.w, high.w, q.z, q.w);
  }
}

// The score of the entry that is this lane's to store: 8 (lane % 4) + lane / 4.
__device__ __forceinline__ float ScoreKeys(const WarpKeys& keys, const TokenQueries& queries) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[4] = {};  // of rows g + 8 r
#pragma unroll 1
  for (int first = 0; first < kHeads; first += kHeadTile * kHeadTilesTogether) {
    float dots[kHeadTilesTogether][2][4] = {};
#pragma unroll
    for (int s = 0; s < kGroups; ++s) {
#pragma unroll
      for (int h = 0; h < kHeadTilesTogether; ++h) {
        const int n = first + h * kHeadTile + lane / 4;
        MultiplyGroup(keys, s, queries.chunks[n][TokenQueries::Place(n, 4 * s + lane % 4)],
                      dots[h]);
      }
    }
#pragma unroll
    for (int h = 0; h < kHeadTilesTogether; ++h) {
      const int n = first + h * kHeadTile + lane % 4 * 2;
      const float2 weights = *reinterpret_cast<const float2*>(&queries.weights[n]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* const of_row = dots[h][r / 2] + r % 2 * 2;
        sums[r] = fmaf(Relu(of_row[0]), weights.x, sums[r]);
        sums[r] = fmaf(Relu(of_row[1]), weights.y, sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], 1);
    sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], 2);
  }
  const int mine = lane % 4;
  return mine < 2 ? (mine == 0 ? sums[0] : sums[1]) : (mine == 2 ? sums[2] : sums[3]);
}

// A block's tokens.
struct TokenTile {
  int sequence[kIndexMmaTokens];
  int visible[kIndexMmaTokens];  // 0: nothing to score
};

// Tokens [begin, end) of the tile, all of one sequence.
__device__ __forceinline__ void ScoreTokens(const IndexSelectKernelArgs& args,
                                            const TokenTile& tile, const TokenQueries* queries,
                                            int begin, int end) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int stored = lane % 4 * 8 + lane / 4;
  int visible = 0;
  for (int j = begin; j < end; ++j) visible = max(visible, tile.visible[j]);
  const int step = args.runs * kIndexMmaTile;
#pragma unroll 1
  for (int first = static_cast<int>(blockIdx.x) * kIndexMmaTile + warp * kWarpEntries;
       first < visible; first += step) {
    const int64_t offset =
        first + lane < visible ? KeyOffset(args, tile.sequence[begin], first + lane) : -1;
    WarpKeys keys;
    LoadKeys(args, offset, &keys);
    const bool exists = __shfl_sync(0xffffffffu, offset, stored) >= 0;
#pragma unroll 1
    for (int j = begin; j < end; ++j) {
      if (first >= tile.visible[j]) continue;
      const float score = ScoreKeys(keys, queries[j]);
      if (first + stored >= tile.visible[j]) continue;
      const int64_t place = static_cast<int64_t>(blockIdx.y) * args.tile_tokens + j;
      args.orders[place * args.order_stride + first + stored] =
          exists ? OrderOf(score) : kLowestOrder;
    }
  }
}

// Which tokens have entries for this block.
__device__ __forceinline__ void FindTokens(const IndexSelectKernelArgs& args, TokenTile& tile) {
  for (int j = 0; j < args.tile_tokens; ++j) {
    const int place = static_cast<int>(blockIdx.y) * args.tile_tokens + j;
    const IndexToken token(args, args.first_token + place);
    if (threadIdx.x != 0) continue;
    const bool has_work = place < args.tokens && token.NeedsScores(args) &&
                          static_cast<int>(blockIdx.x) * kIndexMmaTile < token.visible;
    tile.sequence[j] = token.sequence;
    tile.visible[j] = has_work ? token.visible : 0;
  }
}

__global__ void __launch_bounds__(kThreads, 3)
    IndexScoresMma(const __grid_constant__ IndexSelectKernelArgs args) {
  extern __shared__ uint4 memory[];
  __shared__ TokenTile tile;
  TokenQueries* const queries = reinterpret_cast<TokenQueries*>(memory);
  if (threadIdx.x < 32) FindTokens(args, tile);
  WaitForPriorGrid();
  StartNextGrid();
  __syncthreads();
  for (int j = 0; j < args.tile_tokens; ++j) {
    const int place = static_cast<int>(blockIdx.y) * args.tile_tokens + j;
    if (tile.visible[j] > 0) CopyQueries(QueriesOf(args, place), queries + j);
  }
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  for (int begin = 0, end = 0; begin < args.tile_tokens; begin = end) {
    while (end < args.tile_tokens && tile.sequence[end] == tile.sequence[begin]) ++end;
    ScoreTokens(args, tile, queries, begin, end);
  }
}

}  // namespace

cudaError_t LaunchIndexQueriesMma(const IndexSelectKernelArgs& args, cudaStream_t stream) {
  return Launch(
      IndexQueriesMma,
      {.grid = dim3(kHeads / kWarps, static_cast<unsigned>(args.tokens)), .block = dim3(kThreads)},
      stream, args);
}

cudaError_t LaunchIndexScoresMma(const IndexSelectKernelArgs& args, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>((args.tokens + args.tile_tokens - 1) / args.tile_tokens);
  return Launch(IndexScoresMma,
                {.grid = dim3(static_cast<unsigned>(args.runs), tiles),
                 .block = dim3(kThreads),
                 .shared_bytes = sizeof(TokenQueries) * static_cast<size_t>(args.tile_tokens)},
                stream, args);
}

}  // namespace millrace
