// Grid: (runs of tokens, pieces of the channels). Every block looks through all of `source` for the
// rows of its tokens and lists them in their order, a few microseconds for tens of thousands of
// rows. Then a warp takes a token, or some pieces of it, finds its rows in the list and sums them
// in that order, several rows in flight. Bound by reading the rows. Few rows need no list.
#include "kernels/moe_exchange/moe_exchange_kernel.h"
#include "kernels/moe_exchange/moe_exchange_kernel_pieces.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = kCombineThreads / 32;
constexpr int kGroups = 8;  // of 32 rows that a warp looks at in one pass
constexpr int kPass = kCombineThreads * kGroups;
// Rows that the list holds: those of a pass and some more. Blocks have a few hundred.
constexpr int kListed = kPass + 1024;
constexpr int kInFlight = 4;  // rows of a sum
constexpr int kFewRows = 512;
constexpr int kFewThreads = 256;

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x / 32); }
// The lanes below this one.
__device__ __forceinline__ uint32_t LowerLanes() { return (1u << Lane()) - 1; }

struct Smem {
  // The block's rows so far: the row and its token in the run.
  int row[kListed];
  int token[kListed];
  int found[2][kWarps];        // by each warp, in passes of either parity
  int token_rows[kWarps][32];  // of the token that the warp sums
};

// What one block works on.
struct Run {
  int first;   // token
  int tokens;  // of the run
  int rows;    // listed
  bool fresh;  // nothing was written to y yet
};

// What a warp sums of a token: the block's pieces `piece`, `piece` + `step`, ... of its channels.
struct WarpSum {
  float* y;  // the token's row
  int piece;
  int step;
  bool fresh;  // nothing was written to y yet
};

// y (+)= the first `count` of `rows`.
template <int kWidth>
__device__ __forceinline__ void SumRows(const CombineKernelArgs& args, const WarpSum& warp,
                                        const int* rows, int count) {
  const BlockPieces<kCombineWords * 32 * kWidth> pieces(args.hidden);
  float* const y = warp.y;
  for (int p = warp.piece; p < pieces.count; p += warp.step) {
    const int first = pieces.Begin(p) + Lane() * kWidth;
    Floats<kWidth> sum[kCombineWords] = {};
#pragma unroll
    for (int n = 0; n < kCombineWords; ++n) {
      const int i = first + n * 32 * kWidth;
      if (!warp.fresh && i < args.hidden) sum[n] = Widened(LoadVec<kWidth>(y + i));
    }
    for (int begin = 0; begin < count; begin += kInFlight) {
      Vec<float, kWidth> words[kInFlight][kCombineWords];
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        if (begin + r >= count) break;
        const float* const from = args.rows + rows[begin + r] * args.rows_stride;
#pragma unroll
        for (int n = 0; n < kCombineWords; ++n) {
          const int i = first + n * 32 * kWidth;
          if (i < args.hidden) words[r][n] = LoadVec<kWidth>(from + i);
        }
      }
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        if (begin + r >= count) break;
#pragma unroll
        for (int n = 0; n < kCombineWords; ++n) {
          const Floats<kWidth> values = Widened(words[r][n]);
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sum[n].v[j] += values.v[j];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kCombineWords; ++n) {
      const int i = first + n * 32 * kWidth;
      if (i < args.hidden) StoreVec(y + i, Narrowed<float>(sum[n]));
    }
  }
}

// Adds the listed rows to their tokens. A warp gets the same pieces of the same tokens each time,
// so it reads what it wrote itself.
template <int kWidth>
__device__ __forceinline__ void SumListed(const CombineKernelArgs& args, Smem& smem,
                                          const Run& run) {
  // Runs of few tokens: several warps a token.
  const int groups = max(kWarps / run.tokens, 1);
  int* const rows = smem.token_rows[Warp()];
  for (int i = Warp(); i < run.tokens * groups; i += kWarps) {
    const int token = i / groups;
    WarpSum warp = {.y = args.y + (run.first + token) * args.y_stride,
                    .piece = i % groups,
                    .step = groups,
                    .fresh = run.fresh};
    int count = 0;
    for (int begin = 0; begin < run.rows; begin += 32) {
      const int n = begin + Lane();
      const bool is_mine = n < run.rows && smem.token[n] == token;
      const uint32_t mine = __ballot_sync(kAll, is_mine);
      if (count + __popc(mine) > 32) {
        SumRows<kWidth>(args, warp, rows, count);
        warp.fresh = false, count = 0;
        __syncwarp();
      }
      if (is_mine) rows[count + __popc(mine & LowerLanes())] = smem.row[n];
      count += __popc(mine);
      __syncwarp();
    }
    if (warp.fresh || count > 0) SumRows<kWidth>(args, warp, rows, count);
    __syncwarp();
  }
}

// Adds the block's rows of one pass, from `begin` on, to the list; returns how many they are.
__device__ __forceinline__ int ListPass(const CombineKernelArgs& args, Smem& smem, const Run& run,
                                        int begin) {
  const int first = begin + Warp() * kGroups * 32 + Lane();
  int tokens[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const int n = first + g * 32;
    tokens[g] = n < args.num_rows ? args.source[n] : -1;
  }
  int found = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    tokens[g] -= tokens[g] < 0 ? 0 : run.first;
    found += __popc(__ballot_sync(kAll, tokens[g] >= 0 && tokens[g] < run.tokens));
  }
  int* const each = smem.found[begin / kPass % 2];
  if (Lane() == 0) each[Warp()] = found;
  __syncthreads();
  int to = run.rows, all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < Warp()) to += each[w];
    all += each[w];
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const bool is_mine = tokens[g] >= 0 && tokens[g] < run.tokens;
    const uint32_t mine = __ballot_sync(kAll, is_mine);
    if (is_mine) {
      const int n = to + __popc(mine & LowerLanes());
      smem.row[n] = first + g * 32;
      smem.token[n] = tokens[g];
    }
    to += __popc(mine);
  }
  return all;
}

// For at most kFewRows rows: every warp looks at all of them itself.
template <int kWidth>
__global__ void __launch_bounds__(kFewThreads)
    SumFewRows(const __grid_constant__ CombineKernelArgs args) {
  constexpr int kFewWarps = kFewThreads / 32;
  __shared__ int found[kFewWarps][kFewRows];
  WaitForPriorGrid();
  StartNextGrid();
  int source[kFewRows / 32];
#pragma unroll
  for (int g = 0; g < kFewRows / 32; ++g) {
    const int n = g * 32 + Lane();
    source[g] = n < args.num_rows ? args.source[n] : -1;
  }
  const int first = static_cast<int>(blockIdx.x) * args.plan.block_tokens;
  const int tokens = min(args.plan.block_tokens, args.tokens - first);
  const int groups = max(kFewWarps / tokens, 1);
  for (int i = Warp(); i < tokens * groups; i += kFewWarps) {
    const int token = first + i / groups;
    int count = 0;
#pragma unroll
    for (int g = 0; g < kFewRows / 32; ++g) {
      if (g * 32 >= args.num_rows) break;
      const bool is_mine = source[g] == token;
      const uint32_t mine = __ballot_sync(kAll, is_mine);
      if (is_mine) found[Warp()][count + __popc(mine & LowerLanes())] = g * 32 + Lane();
      count += __popc(mine);
    }
    __syncwarp();
    const WarpSum warp = {
        .y = args.y + token * args.y_stride, .piece = i % groups, .step = groups, .fresh = true};
    SumRows<kWidth>(args, warp, found[Warp()], count);
    __syncwarp();
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kCombineThreads, kCombineBlocks)
    SumTokens(const __grid_constant__ CombineKernelArgs args) {
  __shared__ Smem smem;
  WaitForPriorGrid();
  StartNextGrid();
  const int first = static_cast<int>(blockIdx.x) * args.plan.block_tokens;
  Run run = {.first = first,
             .tokens = min(args.plan.block_tokens, args.tokens - first),
             .rows = 0,
             .fresh = true};
  for (int begin = 0;; begin += kPass) {
    const bool is_end = begin >= args.num_rows;
    if (is_end || run.rows > kListed - kPass) {
      __syncthreads();
      SumListed<kWidth>(args, smem, run);
      if (is_end) return;
      __syncthreads();
      run.rows = 0, run.fresh = false;
    }
    run.rows += ListPass(args, smem, run, begin);
  }
}

}  // namespace

cudaError_t LaunchCombine(bool aligned, const CombineKernelArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.plan.blocks), static_cast<unsigned>(args.plan.parts));
  if (args.num_rows <= kFewRows) {
    return Launch(aligned ? SumFewRows<4> : SumFewRows<1>,
                  {.grid = grid, .block = dim3(kFewThreads)}, stream, args);
  }
  return Launch(aligned ? SumTokens<4> : SumTokens<1>,
                {.grid = grid, .block = dim3(kCombineThreads)}, stream, args);
}

}  // namespace millrace
