// Scores of any shape and type, f32 multiply-adds. Two kernels:
//
// IndexQueries: one block per head and token writes the head's query as floats, through the
// Hadamard matrix and FP4 where serving numerics are asked for, and its weight times the scale.
//
// IndexScores: grid (runs, tokens); a block takes every `runs`-th tile of 64 entries of a token, 64
// heads at a time, the channels in slices through shared memory. A thread has four entries by four
// heads; a score is summed over heads, then over the 16 threads of an entry, so it depends on its
// token and key alone. Bound by multiply-adds.
#include "kernels/index_select/index_select_kernel.cuh"
#include "kernels/index_select/index_select_kernel.h"
#include "kernels/latent_cache/hadamard_fp4.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kHeads = 64;     // of a panel
constexpr int kChannels = 32;  // of a slice
constexpr int kThreads = 256;
constexpr int kOwn = 4;      // entries, and heads, of a thread
constexpr int kAcross = 16;  // threads along the heads, and along the entries
static_assert(kOwn * kAcross == kHeads && kOwn * kAcross == kIndexTile);
static_assert(kAcross * kAcross == kThreads);

__device__ __forceinline__ float* QueriesOf(const IndexSelectKernelArgs& args, int place) {
  return args.queries + int64_t{place} * args.heads * (args.dim + 1);
}

__global__ void IndexQueries(const __grid_constant__ IndexSelectKernelArgs args) {
  __shared__ float4 shared[256];
  WaitForPriorGrid();
  StartNextGrid();
  const int n = static_cast<int>(blockIdx.x), place = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t token = args.first_token + place;
  const int64_t from = token * args.q_token_stride + n * args.q_head_stride;
  float* const queries = QueriesOf(args, place);
  float* const to = queries + int64_t{n} * args.dim;
  if (thread == 0) {
    const float weight =
        ElementAt(args.weights, args.weights_bf16, token * args.weights_stride + n);
    queries[int64_t{args.heads} * args.dim + n] = __fmul_rn(weight, args.scale);
  }
  if (!args.hadamard_fp4) {
    for (int d = thread; d < args.dim; d += static_cast<int>(blockDim.x)) {
      to[d] = ElementAt(args.q, args.q_bf16, from + d);
    }
    return;
  }
  Floats<4> x = {};
  const bool in = 4 * thread < args.dim;
  for (int i = 0; in && i < 4; ++i) {
    x.v[i] = ElementAt(args.q, args.q_bf16, from + 4 * thread + i);
  }
  HadamardOfFours(args.dim, thread, reinterpret_cast<float*>(shared), &x);
  RoundHadamardFp4(args.dim, &x);
  for (int i = 0; in && i < 4; ++i) to[4 * thread + i] = x.v[i];
}

// A tile in shared memory; rows padded so that 16 of them at one channel are in 16 banks.
struct ScoreTile {
  float keys[kIndexTile][kChannels + 1];
  float queries[kHeads][kChannels + 1];
  int64_t offsets[kIndexTile];
};

// Channels [begin, begin + kChannels), zeros past the last and for what does not exist.
__device__ __forceinline__ void LoadSlice(const IndexSelectKernelArgs& args, const float* queries,
                                          int first_head, int begin, ScoreTile& tile) {
  const int channel = static_cast<int>(threadIdx.x % kChannels), d = begin + channel;
  for (int row = static_cast<int>(threadIdx.x) / kChannels; row < kIndexTile;
       row += kThreads / kChannels) {
    const int64_t offset = tile.offsets[row];
    tile.keys[row][channel] =
        offset >= 0 && d < args.dim ? ElementAt(args.keys, args.keys_bf16, offset + d) : 0.0f;
    const int n = first_head + row;
    tile.queries[row][channel] =
        n < args.heads && d < args.dim ? queries[int64_t{n} * args.dim + d] : 0.0f;
  }
}

__device__ __forceinline__ void MultiplySlice(const ScoreTile& tile, float (&dots)[kOwn][kOwn]) {
  const int x = static_cast<int>(threadIdx.x % kAcross);
  const int y = static_cast<int>(threadIdx.x / kAcross);
#pragma unroll 8
  for (int d = 0; d < kChannels; ++d) {
    float keys[kOwn], queries[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      keys[i] = tile.keys[y + i * kAcross][d];
      queries[i] = tile.queries[x + i * kAcross][d];
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kOwn; ++j) dots[i][j] = fmaf(keys[i], queries[j], dots[i][j]);
    }
  }
}

// Scores of the tile's entries, of those that this thread shares; all threads of an entry get them.
__device__ __forceinline__ void ScoreEntries(const IndexSelectKernelArgs& args,
                                             const float* queries, ScoreTile& tile,
                                             float (&scores)[kOwn]) {
  const float* const weights = queries + int64_t{args.heads} * args.dim;
  for (int first = 0; first < args.heads; first += kHeads) {
    float dots[kOwn][kOwn] = {};
    for (int begin = 0; begin < args.dim; begin += kChannels) {
      __syncthreads();
      LoadSlice(args, queries, first, begin, tile);
      __syncthreads();
      MultiplySlice(tile, dots);
    }
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int n = first + static_cast<int>(threadIdx.x % kAcross) + j * kAcross;
      if (n >= args.heads) continue;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) scores[i] = fmaf(Relu(dots[i][j]), weights[n], scores[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
#pragma unroll
    for (int d = kAcross / 2; d > 0; d /= 2) {
      scores[i] += __shfl_xor_sync(0xffffffffu, scores[i], d);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    IndexScores(const __grid_constant__ IndexSelectKernelArgs args) {
  __shared__ ScoreTile tile;
  const int place = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  const IndexToken token(args, args.first_token + place);
  WaitForPriorGrid();
  StartNextGrid();
  if (!token.NeedsScores(args)) return;
  uint32_t* const orders = args.orders + int64_t{place} * args.order_stride;
  for (int t = static_cast<int>(blockIdx.x); t * kIndexTile < token.visible; t += args.runs) {
    const int first = t * kIndexTile;
    __syncthreads();
    if (thread < kIndexTile) {
      const bool in = first + thread < token.visible;
      tile.offsets[thread] = in ? KeyOffset(args, token.sequence, first + thread) : -1;
    }
    float scores[kOwn] = {};
    ScoreEntries(args, QueriesOf(args, place), tile, scores);
    if (thread % kAcross != 0) continue;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = thread / kAcross + i * kAcross;
      if (first + row >= token.visible) continue;
      orders[first + row] = tile.offsets[row] < 0 ? kLowestOrder : OrderOf(scores[i]);
    }
  }
}

unsigned Unsigned(int32_t x) { return static_cast<unsigned>(x); }

}  // namespace

cudaError_t LaunchIndexQueries(const IndexSelectKernelArgs& args, cudaStream_t stream) {
  const int threads = args.hadamard_fp4 && args.dim > 128 ? args.dim / 4 : 32;
  return Launch(
      IndexQueries,
      {.grid = dim3(Unsigned(args.heads), Unsigned(args.tokens)), .block = dim3(Unsigned(threads))},
      stream, args);
}

cudaError_t LaunchIndexScores(const IndexSelectKernelArgs& args, cudaStream_t stream) {
  return Launch(IndexScores,
                {.grid = dim3(Unsigned(args.runs), Unsigned(args.tokens)), .block = dim3(kThreads)},
                stream, args);
}

}  // namespace millrace
