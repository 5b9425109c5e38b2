// Grid: (runs of tokens, pieces of the channels). Where a token's rows go depends on the choices of
// all tokens, so every block counts all of them itself, a token a lane and a rank a ballot: that is
// a few microseconds for thousands of tokens whose rows take a hundred, and needs neither a second
// launch nor memory for places. From then on lane r of every warp knows the rows of rank r, and the
// warps go their own ways: each takes a piece of a token's channels, reads it once, and has the
// copy engine write it to each of the token's rows (lane r to that of rank r). Bound by these
// writes.
#include "kernels/moe_exchange/moe_exchange_kernel.h"
#include "kernels/moe_exchange/moe_exchange_kernel_bulk.cuh"
#include "kernels/moe_exchange/moe_exchange_kernel_pieces.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kWarps = kDispatchThreads / 32;
constexpr int kTile = 32;    // tokens whose places are known at a time
constexpr int kGroups = 4;   // of 32 tokens that a warp counts at a time
constexpr int kBuffers = 2;  // pieces of a warp that the copy engine may be at

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x % 32); }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x / 32); }
// The lowest n bits.
__device__ __forceinline__ uint32_t LowBits(int n) { return n >= 32 ? kAll : (1u << n) - 1; }

// One bit: the rank that holds the expert; none where there is no such expert.
__device__ __forceinline__ uint32_t RankBit(const RankOfExpert& of, int expert) {
  if (expert < 0 || expert >= of.num_experts) return 0;
  const bool is_long = expert < of.long_experts;
  const uint32_t place = is_long ? expert : expert - of.long_experts;
  const uint32_t rank = __umulhi(2 * place, is_long ? of.long_inverse : of.short_inverse);
  return 1u << (rank + (is_long ? 0 : of.long_ranks));
}

// The ranks of kCount tokens 32 apart, from t on; none of those from `end` on.
template <int kCount>
__device__ __forceinline__ void RanksOf(const DispatchKernelArgs& args, int t, int end,
                                        uint32_t (&ranks)[kCount]) {
#pragma unroll
  for (int g = 0; g < kCount; ++g) ranks[g] = 0;
#pragma unroll 2
  for (int k = 0; k < args.chosen; ++k) {
#pragma unroll
    for (int g = 0; g < kCount; ++g) {
      const int token = t + g * 32;
      if (token < end) {
        ranks[g] |= RankBit(args.rank_of, args.experts[token * args.experts_stride + k]);
      }
    }
  }
}

// Of 32 tokens, a lane's each, those of rank Lane() as bits.
__device__ __forceinline__ uint32_t TokensOfMyRank(const DispatchKernelArgs& args, uint32_t ranks) {
  uint32_t mine = 0;
#pragma unroll 4
  for (int r = 0; r < args.ranks; ++r) {
    const uint32_t tokens = __ballot_sync(kAll, ranks >> r & 1);
    if (Lane() == r) mine = tokens;
  }
  return mine;
}

// Likewise, of tokens [begin, end), at most 32.
__device__ __forceinline__ uint32_t TokensOfMyRank(const DispatchKernelArgs& args, int begin,
                                                   int end) {
  uint32_t ranks[1];
  RanksOf(args, begin + Lane(), end, ranks);
  return TokensOfMyRank(args, ranks[0]);
}

// Rows of rank Lane(): of all tokens, and of those before `first`.
struct RankCount {
  int all;
  int before;
};

__device__ __forceinline__ RankCount CountTile(uint32_t tokens, int begin, int first) {
  return {__popc(tokens), __popc(tokens & LowBits(min(max(first - begin, 0), 32)))};
}

// By the whole block.
__device__ __forceinline__ RankCount CountRows(const DispatchKernelArgs& args, int first) {
  __shared__ RankCount parts[kWarps][32];
  if (args.tokens <= 32) return CountTile(TokensOfMyRank(args, 0, args.tokens), 0, first);
  RankCount count = {0, 0};
  for (int t = Warp() * kGroups * 32; t < args.tokens; t += kDispatchThreads * kGroups) {
    uint32_t ranks[kGroups];
    RanksOf(args, t + Lane(), args.tokens, ranks);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const RankCount tile = CountTile(TokensOfMyRank(args, ranks[g]), t + g * 32, first);
      count.all += tile.all, count.before += tile.before;
    }
  }
  parts[Warp()][Lane()] = count;
  __syncthreads();
  count = {0, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const RankCount part = parts[w][Lane()];
    count.all += part.all, count.before += part.before;
  }
  return count;
}

// The sum over the lower lanes.
__device__ __forceinline__ int SumBelow(int x) {
  int sum = x;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int lower = __shfl_up_sync(kAll, sum, d);
    if (Lane() >= d) sum += lower;
  }
  return sum - x;
}

// Of a tile of tokens, those that rank Lane() gets, and where their rows begin.
struct LaneRows {
  uint32_t tokens;
  int first;

  __device__ __forceinline__ bool Holds(int n) const { return tokens >> n & 1; }
  __device__ __forceinline__ int Row(int n) const { return first + __popc(tokens & LowBits(n)); }
};

// Calls fn(row) in all lanes for each row of a token; `holds` and `row` are the lane's rank's.
template <typename Fn>
__device__ __forceinline__ void ForEachRow(bool holds, int row, Fn fn) {
  for (uint32_t ranks = __ballot_sync(kAll, holds); ranks != 0; ranks &= ranks - 1) {
    fn(__shfl_sync(kAll, row, __ffs(static_cast<int>(ranks)) - 1));
  }
}

// What stands behind the channels in a row of token t: its weights, then its experts.
__device__ __forceinline__ float ChoiceWord(const DispatchKernelArgs& args, int t, int word) {
  if (word < args.chosen) return args.weights[t * args.weights_stride + word];
  if (word >= 2 * args.chosen) return 0;
  return __int_as_float(args.experts[t * args.experts_stride + word - args.chosen]);
}

// Writes these and the source of token t. `mine` is the lane's first word of them.
__device__ __forceinline__ void StoreChoices(const DispatchKernelArgs& args, int t, bool holds,
                                             int row, float mine) {
  for (int word = Lane(); word - Lane() < 2 * args.chosen; word += 32) {
    const float value = word < 32 ? mine : ChoiceWord(args, t, word);
    ForEachRow(holds, row, [&](int to) {
      if (word >= 2 * args.chosen) return;
      args.rows[static_cast<int64_t>(to) * args.width + args.hidden + word] = value;
    });
  }
  if (holds) args.source[row] = t;
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

// A warp's piece of a token's channels on its way; with the first one, of the words behind them.
template <typename T, int kWidth>
struct Piece {
  static constexpr int kChannels = kDispatchWords * 32 * kWidth;
  Vec<T, kWidth> words[kDispatchWords];
  float choice;

  __device__ __forceinline__ static int Channel(int n) { return (n * 32 + Lane()) * kWidth; }
  // Channels from `begin` on of token t.
  __device__ __forceinline__ void Load(const DispatchKernelArgs& args, int t, int begin) {
    const T* const from = static_cast<const T*>(args.x) + t * args.x_stride + begin;
#pragma unroll
    for (int n = 0; n < kDispatchWords; ++n) {
      if (begin + Channel(n) < args.hidden) words[n] = LoadVec<kWidth>(from + Channel(n));
    }
    if (begin == 0) choice = ChoiceWord(args, t, Lane());
  }
  __device__ __forceinline__ void StoreTo(float* to, int size) const {
#pragma unroll
    for (int n = 0; n < kDispatchWords; ++n) {
      if (Channel(n) < size) StoreVec(to + Channel(n), AsFloats(words[n]));
    }
  }
};

// Writes pieces, word by word.
struct PlainWriter {
  __device__ __forceinline__ explicit PlainWriter(float*) {}

  template <typename P>
  __device__ __forceinline__ void Write(const DispatchKernelArgs& args, const P& piece, int begin,
                                        bool holds, int row) {
    ForEachRow(holds, row, [&](int to) {
      piece.StoreTo(args.rows + static_cast<int64_t>(to) * args.width + begin, args.hidden - begin);
    });
  }
  __device__ __forceinline__ void Finish() {}
};

// Writes pieces by the copy engine, through the warp's buffers in turns.
struct BulkWriter {
  static constexpr int kFloats = kDispatchWords * 32 * 4;
  float* buffers;
  int turn = 0;

  __device__ __forceinline__ explicit BulkWriter(float* shared)
      : buffers(shared + Warp() * kBuffers * kFloats) {}

  template <typename P>
  __device__ __forceinline__ void Write(const DispatchKernelArgs& args, const P& piece, int begin,
                                        bool holds, int row) {
    float* const buffer = buffers + turn * kFloats;
    turn = (turn + 1) % kBuffers;
    // In each lane: what it sent from this buffer.
    WaitBytesRead<kBuffers - 1>();
    __syncwarp();
    const int size = min(args.hidden - begin, kFloats);
    piece.StoreTo(buffer, size);
    FenceBytes();
    __syncwarp();
    if (holds && size > 0) {
      StoreBytes(args.rows + static_cast<int64_t>(row) * args.width + begin, buffer,
                 static_cast<uint32_t>(size) * sizeof(float));
    }
    CommitBytes();
  }
  __device__ __forceinline__ void Finish() { WaitBytesWritten(); }
};

template <typename T, int kWidth, typename Writer>
__global__ void __launch_bounds__(kDispatchThreads)
    PackTokens(const __grid_constant__ DispatchKernelArgs args) {
  extern __shared__ __align__(128) float buffers[];
  WaitForPriorGrid();
  StartNextGrid();
  const int first = static_cast<int>(blockIdx.x) * args.plan.block_tokens;
  const int end = min(first + args.plan.block_tokens, args.tokens);
  const BlockPieces<Piece<T, kWidth>::kChannels> pieces(args.hidden);
  // The warp's pieces are `item`, `item` + kWarps, ...; each is loaded while the one before it is
  // written, and the first while rows are counted.
  const int items = (end - first) * pieces.count;
  int item = Warp();
  Piece<T, kWidth> piece, ahead;
  if (item < items)
    piece.Load(args, first + item / pieces.count, pieces.Begin(item % pieces.count));
  const RankCount count = CountRows(args, first);
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < args.ranks) {
    args.counts[threadIdx.x] = count.all;
  }
  LaneRows rows = {0, SumBelow(count.all) + count.before};
  Writer writer(buffers);
  for (int begin = first; begin < end; begin += kTile) {
    const int known = (min(begin + kTile, end) - first) * pieces.count;
    rows.first += __popc(rows.tokens);
    rows.tokens = TokensOfMyRank(args, begin, end);
#pragma unroll 1
    for (; item < known; item += kWarps) {
      const int after = item + kWarps;
      if (after < items) {
        ahead.Load(args, first + after / pieces.count, pieces.Begin(after % pieces.count));
      }
      const int t = first + item / pieces.count;
      const int channel = pieces.Begin(item % pieces.count);
      const bool holds = rows.Holds(t - begin);
      const int row = rows.Row(t - begin);
      writer.Write(args, piece, channel, holds, row);
      if (channel == 0) StoreChoices(args, t, holds, row, piece.choice);
      piece = ahead;
    }
  }
  writer.Finish();
}

struct Choice {
  void (*kernel)(DispatchKernelArgs);
  size_t shared_bytes;
};

constexpr size_t kBulkBytes = sizeof(float) * kWarps * kBuffers * BulkWriter::kFloats;
using Bf16 = __nv_bfloat16;
constexpr Choice kChoices[] = {
    {PackTokens<float, 1, PlainWriter>, 0},
    {PackTokens<Bf16, 1, PlainWriter>, 0},
    {PackTokens<float, 4, BulkWriter>, kBulkBytes},
    {PackTokens<Bf16, 4, BulkWriter>, kBulkBytes},
};

}  // namespace

cudaError_t LaunchDispatch(DispatchVariant variant, const DispatchKernelArgs& args,
                           cudaStream_t stream) {
  const Choice choice = kChoices[static_cast<int>(variant)];
  return Launch(choice.kernel,
                {.grid = dim3(static_cast<unsigned>(args.plan.blocks),
                              static_cast<unsigned>(args.plan.parts)),
                 .block = dim3(kDispatchThreads),
                 .shared_bytes = choice.shared_bytes},
                stream, args);
}

}  // namespace millrace
