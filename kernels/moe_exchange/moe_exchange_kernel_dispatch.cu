// Grid: (runs of tokens, pieces of the channels). Where a token's rows go depends on the choices of
// all tokens, so every block counts all of them itself, a token a lane and a rank a ballot: that is
// a few microseconds for thousands of tokens whose rows take a hundred, and needs neither a second
// launch nor memory for places. Then a warp takes a piece of a token's channels, reads it once and
// writes it to each of the token's rows. Bound by these writes.
#include "kernels/moe_exchange/moe_exchange_kernel.h"
#include "kernels/moe_exchange/moe_exchange_kernel_pieces.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = kDispatchThreads / 32;
constexpr int kTile = 32;   // tokens whose places are known at a time
constexpr int kGroups = 4;  // of 32 tokens that a warp counts at a time

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x / 32); }

// One bit: the rank that holds the expert; none where there is no such expert.
__device__ __forceinline__ uint32_t RankBit(const RankOfExpert& of, int expert) {
  if (expert < 0 || expert >= of.num_experts) return 0;
  const bool is_long = expert < of.long_experts;
  const uint32_t place = is_long ? expert : expert - of.long_experts;
  const uint32_t rank = __umulhi(2 * place, is_long ? of.long_inverse : of.short_inverse);
  return 1u << (rank + (is_long ? 0 : of.long_ranks));
}

// The ranks of kCount tokens `kTile` apart, from t on; none of those from `end` on.
template <int kCount>
__device__ __forceinline__ void RanksOf(const DispatchKernelArgs& args, int t, int end,
                                        uint32_t (&ranks)[kCount]) {
#pragma unroll
  for (int g = 0; g < kCount; ++g) ranks[g] = 0;
#pragma unroll 2
  for (int k = 0; k < args.chosen; ++k) {
#pragma unroll
    for (int g = 0; g < kCount; ++g) {
      const int token = t + g * kTile;
      if (token < end) {
        ranks[g] |= RankBit(args.rank_of, args.experts[token * args.experts_stride + k]);
      }
    }
  }
}

// Of 32 tokens a lane's each, those of rank `Lane()` as bits.
__device__ __forceinline__ uint32_t TokensOfMyRank(const DispatchKernelArgs& args, uint32_t ranks) {
  uint32_t mine = 0;
#pragma unroll 4
  for (int r = 0; r < args.ranks; ++r) {
    const uint32_t tokens = __ballot_sync(kAll, ranks >> r & 1);
    if (Lane() == r) mine = tokens;
  }
  return mine;
}

struct Smem {
  int all[kWarps][32];                 // a warp's tokens for each rank,
  int before[kWarps][32];              // and of them those before the block's run
  int rows[kTile][kMaxExchangeRanks];  // of each token of the tile
  int count[kTile];
};

// In warp 0, lane r: where the rows of the block's tokens for rank r begin.
__device__ __forceinline__ int FirstRow(const DispatchKernelArgs& args, int first, Smem& smem) {
  int all = 0, before = 0;
  for (int t = Warp() * kGroups * 32; t < args.tokens; t += kDispatchThreads * kGroups) {
    uint32_t ranks[kGroups];
    RanksOf(args, t + Lane(), args.tokens, ranks);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const uint32_t mine = TokensOfMyRank(args, ranks[g]);
      const int earlier = min(max(first - (t + g * 32), 0), 32);
      all += __popc(mine);
      before += __popc(earlier == 32 ? mine : mine & ((1u << earlier) - 1));
    }
  }
  smem.all[Warp()][Lane()] = all;
  smem.before[Warp()][Lane()] = before;
  __syncthreads();
  if (Warp() != 0) return 0;
  all = 0, before = 0;
  for (int w = 0; w < kWarps; ++w) all += smem.all[w][Lane()], before += smem.before[w][Lane()];
  if (blockIdx.x == 0 && blockIdx.y == 0 && Lane() < args.ranks) args.counts[Lane()] = all;
  // Behind the rows of all lower ranks.
  int below = all;
  for (int d = 1; d < 32; d *= 2) {
    const int lower = __shfl_up_sync(kAll, below, d);
    if (Lane() >= d) below += lower;
  }
  return below - all + before;
}

// By warp 0: the rows of tokens [begin, end), at most kTile, a token a lane. Lane r's `next` is the
// next row of rank r.
__device__ __forceinline__ void FindRows(const DispatchKernelArgs& args, int begin, int end,
                                         int* next, Smem& smem) {
  const int t = begin + Lane();
  uint32_t ranks[1];
  RanksOf(args, t, end, ranks);
  int count = 0;
  for (int r = 0; r < args.ranks; ++r) {
    const uint32_t tokens = __ballot_sync(kAll, ranks[0] >> r & 1);
    const int row = __shfl_sync(kAll, *next, r) + __popc(tokens & ((1u << Lane()) - 1));
    if (Lane() == r) *next += __popc(tokens);
    if ((ranks[0] >> r & 1) == 0) continue;
    smem.rows[Lane()][count++] = row;
    if (blockIdx.y == 0) args.source[row] = t;
  }
  smem.count[Lane()] = count;
}

// Of a word's channels, one or four.
__device__ __forceinline__ Vec<float, 4> AsFloats(const Vec<__nv_bfloat16, 4>& word) {
  return {make_uint4(word.raw.x << 16, word.raw.x & 0xffff0000u,  //
                     word.raw.y << 16, word.raw.y & 0xffff0000u)};
}
template <typename T, int kWidth>
__device__ __forceinline__ Vec<float, kWidth> AsFloats(const Vec<T, kWidth>& word) {
  return Narrowed<float>(Widened(word));
}

// A warp's piece of a token's channels on its way.
template <typename T, int kWidth>
struct Piece {
  Vec<T, kWidth> words[kDispatchWords];

  __device__ __forceinline__ static int Channel(int begin, int n) {
    return begin + (n * 32 + Lane()) * kWidth;
  }
  // Channels from `begin` on of token t.
  __device__ __forceinline__ void Load(const DispatchKernelArgs& args, int t, int begin) {
    const T* const from = static_cast<const T*>(args.x) + t * args.x_stride;
#pragma unroll
    for (int n = 0; n < kDispatchWords; ++n) {
      const int i = Channel(begin, n);
      if (i < args.hidden) words[n] = LoadVec<kWidth>(from + i);
    }
  }
  __device__ __forceinline__ void Store(const DispatchKernelArgs& args, int row, int begin) const {
    float* const to = args.rows + static_cast<int64_t>(row) * args.width;
#pragma unroll
    for (int n = 0; n < kDispatchWords; ++n) {
      const int i = Channel(begin, n);
      if (i < args.hidden) StoreVec(to + i, AsFloats(words[n]));
    }
  }
};

// Weights and experts of `tokens` tokens from `begin` on, behind the channels of their rows.
__device__ __forceinline__ void CopyChoices(const DispatchKernelArgs& args, int begin, int tokens,
                                            const Smem& smem) {
  const int words = 2 * args.chosen;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * words; i += kDispatchThreads) {
    const int n = i / words, word = i % words;
    const int64_t t = begin + n;
    const float value =
        word < args.chosen
            ? args.weights[t * args.weights_stride + word]
            : __int_as_float(args.experts[t * args.experts_stride + word - args.chosen]);
    for (int r = 0; r < smem.count[n]; ++r) {
      args.rows[static_cast<int64_t>(smem.rows[n][r]) * args.width + args.hidden + word] = value;
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kDispatchThreads, kExchangeBlocks)
    PackTokens(const __grid_constant__ DispatchKernelArgs args) {
  __shared__ Smem smem;
  WaitForPriorGrid();
  StartNextGrid();
  const int first = static_cast<int>(blockIdx.x) * args.plan.block_tokens;
  const int end = min(first + args.plan.block_tokens, args.tokens);
  const BlockPieces<kDispatchWords * 32 * kWidth> pieces(args.hidden);
  // The warp's pieces are `item`, `item` + kWarps, ...; each is loaded while the one before it is
  // written, and the first while places are counted.
  const int items = (end - first) * pieces.count;
  int item = Warp();
  Piece<T, kWidth> piece, ahead;
  if (item < items)
    piece.Load(args, first + item / pieces.count, pieces.Begin(item % pieces.count));
  int next = FirstRow(args, first, smem);
  for (int begin = first; begin < end; begin += kTile) {
    const int tokens = min(kTile, end - begin);
    if (Warp() == 0) FindRows(args, begin, end, &next, smem);
    __syncthreads();
    const int known = (begin + tokens - first) * pieces.count;
#pragma unroll 1
    for (; item < known; item += kWarps) {
      const int after = item + kWarps;
      if (after < items) {
        ahead.Load(args, first + after / pieces.count, pieces.Begin(after % pieces.count));
      }
      const int n = first + item / pieces.count - begin;
      for (int r = 0; r < smem.count[n]; ++r) {
        piece.Store(args, smem.rows[n][r], pieces.Begin(item % pieces.count));
      }
      piece = ahead;
    }
    if (blockIdx.y == 0) CopyChoices(args, begin, tokens, smem);
    __syncthreads();
  }
}

constexpr void (*kKernels[])(DispatchKernelArgs) = {
    PackTokens<float, 1>, PackTokens<__nv_bfloat16, 1>, PackTokens<float, 4>,
    PackTokens<__nv_bfloat16, 4>};

}  // namespace

cudaError_t LaunchDispatch(DispatchVariant variant, const DispatchKernelArgs& args,
                           cudaStream_t stream) {
  return Launch(kKernels[static_cast<int>(variant)],
                {.grid = dim3(static_cast<unsigned>(args.plan.blocks),
                              static_cast<unsigned>(args.plan.parts)),
                 .block = dim3(kDispatchThreads)},
                stream, args);
}

}  // namespace millrace
