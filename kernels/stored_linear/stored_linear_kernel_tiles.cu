// Few tokens: bound by reading the weight, each byte once for 16 tokens.
//
// Persistent blocks, one an SM or two of up to 8 warps; each takes an even part of the tiles, in a
// row. A tile has 8 or 16 rows. A block's warps share the inputs: warp w of W has pieces w, w + W
// ... of each row, 128 bytes, and meets 8 rows and 16 tokens with mma.sync, tokens being A and the
// rows B. Which of a piece's inputs a lane has is nobody's business as long as A and B agree, so
// lanes load 16 bytes as they lie. Pieces are loaded kStages ahead, also over the end of a tile,
// and the first before the inputs are there. After a tile one warp, by turns, adds up the sums of
// all.
//
// FP8 codes become f16, which is exact; so are the products of a group of 128 inputs, and each
// group's sum is multiplied with its two scales in f32. An f32 activation that meets bf16 weights
// is the sum of three bf16, exactly.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/ptx/fp8_quad.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/stored_linear/stored_linear_kernel.h"
#include "kernels/stored_linear/stored_linear_kernel_store.cuh"
#include "kernels/stored_matrix/stored_value.cuh"

namespace millrace {
namespace {

constexpr int kMostWarps = 16;
constexpr int kTileRows = 8;  // of one mma
constexpr int kPrepareWarps = 8;

struct TilesArgs {
  StoredLinearKernelArgs call;
  const uint8_t* x = nullptr;  // codes or bf16
  int64_t x_bytes = 0;         // from token to token
  int64_t part_bytes = 0;      // bf16: from part to part
  int32_t parts = 1;
  const float* scales = nullptr;  // FP8: [tokens, groups]
};

// Grid: groups of 128 channels, a warp each, by tokens.
__global__ void __launch_bounds__(32 * kPrepareWarps)
    PrepareCodes(const __grid_constant__ StoredLinearKernelArgs args, float* scales) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.y), cols = args.weight.cols;
  const int group =
      static_cast<int>(blockIdx.x) * kPrepareWarps + static_cast<int>(threadIdx.x) / 32;
  if (group * kCodeGroup >= cols) return;
  const ActivationGroup values({args.x, args.x_stride, cols, args.x_bf16}, token, group);
  uint32_t codes[4];
  const float scale = values.Encode(codes);
  uint8_t* const to = static_cast<uint8_t*>(args.prepared) + int64_t{token} * cols;
#pragma unroll
  for (int i = 0; i < 4; ++i) to[values.Column(group, i)] = static_cast<uint8_t>(codes[i]);
  if (threadIdx.x % 32 == 0) scales[int64_t{token} * (cols / kCodeGroup) + group] = scale;
}

// Likewise: [parts, tokens, cols] bf16, the leading bits first.
__global__ void __launch_bounds__(32 * kPrepareWarps)
    PrepareParts(const __grid_constant__ StoredLinearKernelArgs args, int parts) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.y), cols = args.weight.cols;
  const int group =
      static_cast<int>(blockIdx.x) * kPrepareWarps + static_cast<int>(threadIdx.x) / 32;
  if (group * kCodeGroup >= cols) return;
  ActivationGroup values({args.x, args.x_stride, cols, args.x_bf16}, token, group);
  if (args.rounds) values.Round();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = values.Column(group, i);
    if (col >= cols) continue;
    uint16_t* to = static_cast<uint16_t*>(args.prepared) + int64_t{token} * cols + col;
    float rest = values.x[i];
    for (int p = 0; p < parts; ++p, to += int64_t{args.tokens} * cols) {
      const uint32_t top = __float_as_uint(rest) & 0xffff0000u;
      *to = static_cast<uint16_t>(top >> 16);
      // Nothing is left of infinity; a NaN without bits in its top half leaves one.
      rest = isinf(rest) ? 0.0f : rest - __uint_as_float(top);
    }
  }
}

// What a lane holds of a piece: 16 bytes of each half of the row lane / 4 of each 8 rows; FP8: the
// scales of rows 2 (lane % 4) and the next, as stored.
template <int kTiles>
struct Stage {
  uint4 words[kTiles][2];
  uint32_t scales[kTiles][2];
};

// A warp's next piece.
struct Place {
  int tile, piece;
  __device__ __forceinline__ void Next(int warp, int warps, int pieces) {
    piece += warps;
    if (piece < pieces) return;
    piece = warp;
    ++tile;
  }
};

__device__ __forceinline__ uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <bool kFp8, int kTiles, int kTokens>
class Multiplier {
 public:
  __device__ __forceinline__ explicit Multiplier(const TilesArgs& args)
      : args_(args), first_token_(static_cast<int>(blockIdx.y) * kTokens) {}

  __device__ __forceinline__ void Load(const Place& at, Stage<kTiles>& to) const {
    const StoredMatrixArgs& m = args_.call.weight;
    const int64_t row_bytes = int64_t{m.cols} * (kFp8 ? 1 : 2);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int first = (at.tile * kTiles + i) * kTileRows;
      // Rows past the last take its place: their sums are nobody's.
      const int row = min(first + lane_ / 4, m.rows - 1);
      const uint8_t* const from = static_cast<const uint8_t*>(m.values) + row * row_bytes +
                                  at.piece * kRowPieceBytes + lane_ % 4 * 16;
      to.words[i][0] = LoadStream(from);
      to.words[i][1] = LoadStream(from + kRowPieceBytes / 2);
      if constexpr (kFp8) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int scaled = m.tile_row + min(first + lane_ % 4 * 2 + j, m.rows - 1);
          const int64_t scale = int64_t{scaled / 128} * m.scale_cols + at.piece;
          to.scales[i][j] = m.f32_scales ? static_cast<const uint32_t*>(m.scales)[scale]
                                         : static_cast<const uint8_t*>(m.scales)[scale];
        }
      }
    }
  }

  // Adds the products of a piece: tokens lane / 4 and 8 more, rows 2 (lane % 4) and the next.
  __device__ __forceinline__ void Multiply(const Stage<kTiles>& stage, int piece,
                                           float (&sums)[kTiles][4]) const {
    float part[kTiles][4] = {};
    if constexpr (kFp8) {
      Products(stage, piece, 0, part);
      const int groups = args_.call.weight.cols / kCodeGroup;
      const float low = LoadInPlace(args_.scales + int64_t{Token(0)} * groups + piece);
      const float high =
          kWide ? LoadInPlace(args_.scales + int64_t{Token(8)} * groups + piece) : 0.0f;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t stored = stage.scales[i][j % 2];
          const float scale =
              args_.call.weight.f32_scales ? __uint_as_float(stored) : E8M0Value(stored);
          sums[i][j] = __fmaf_rn(part[i][j] * (j < 2 ? low : high), scale, sums[i][j]);
        }
      }
    } else {
      for (int p = args_.parts - 1; p >= 0; --p) Products(stage, piece, p, part);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] += part[i][j];
      }
    }
  }

  // From the sums of `warps` warps, which lie one behind the other.
  __device__ __forceinline__ void Store(int tile, const float4 (*from)[kTiles][32],
                                        int warps) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      float sums[4] = {};
#pragma unroll 4
      for (int w = 0; w < warps; ++w) {
        const float4 v = from[w][i][lane_];
        sums[0] += v.x, sums[1] += v.y, sums[2] += v.z, sums[3] += v.w;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int token = first_token_ + lane_ / 4 + j / 2 * 8;
        const int row = (tile * kTiles + i) * kTileRows + lane_ % 4 * 2 + j % 2;
        if (token < args_.call.tokens && row < args_.call.weight.rows) {
          StoreOutput(args_.call, token, row, sums[j]);
        }
      }
    }
  }

 private:
  static constexpr bool kWide = kTokens == 16;

  // Tokens past the last take its place.
  __device__ __forceinline__ int Token(int more) const {
    return min(first_token_ + lane_ / 4 + more, args_.call.tokens - 1);
  }

  __device__ __forceinline__ void Products(const Stage<kTiles>& stage, int piece, int part,
                                           float (&sums)[kTiles][4]) const {
    const uint8_t* const from =
        args_.x + part * args_.part_bytes + piece * kRowPieceBytes + lane_ % 4 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = half * kRowPieceBytes / 2;
      const uint4 low = LoadInPlace(static_cast<const void*>(from + Token(0) * args_.x_bytes + at));
      uint4 high = {};
      if constexpr (kWide) {
        high = LoadInPlace(static_cast<const void*>(from + Token(8) * args_.x_bytes + at));
      }
#pragma unroll
      for (int w = 0; w < 4; w += kFp8 ? 1 : 2) {
        if constexpr (kFp8) {
          const WidenedQuad a = WidenE4M3Quad(Word(low, w));
          WidenedQuad c = {};
          if constexpr (kWide) c = WidenE4M3Quad(Word(high, w));
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            const WidenedQuad b = WidenE4M3Quad(Word(stage.words[i][half], w));
            MmaF16(sums[i], a.low, c.low, a.high, c.high, b.low, b.high);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            MmaBf16(sums[i], Word(low, w), Word(high, w), Word(low, w + 1), Word(high, w + 1),
                    Word(stage.words[i][half], w), Word(stage.words[i][half], w + 1));
          }
        }
      }
    }
  }

  const TilesArgs& args_;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  const int first_token_;
};

template <bool kFp8, int kTiles, int kTokens>
__global__ void __launch_bounds__(32 * kMostWarps)
    TilesKernel(const __grid_constant__ TilesArgs args) {
  constexpr int kStages = kTiles == 1 ? 4 : 3;
  __shared__ float4 shared[2][kMostWarps][kTiles][32];
  const StoredMatrixArgs& m = args.call.weight;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int pieces = m.cols / (kFp8 ? kRowPieceBytes : kRowPieceBytes / 2);
  const int64_t tiles = (m.rows + kTiles * kTileRows - 1) / (kTiles * kTileRows);
  const int first = static_cast<int>(tiles * blockIdx.x / gridDim.x);
  const int end = static_cast<int>(tiles * (blockIdx.x + 1) / gridDim.x);
  const Multiplier<kFp8, kTiles, kTokens> multiplier(args);
  Stage<kTiles> stages[kStages];
  Place at = {first, warp}, ahead = at;
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    if (ahead.tile < end) multiplier.Load(ahead, stages[i]);
    ahead.Next(warp, warps, pieces);
  }
  WaitForPriorGrid();
  StartNextGrid();
  float sums[kTiles][4] = {};
  // Whether there was a piece left.
  const auto step = [&](Stage<kTiles>& stage) {
    if (at.tile >= end) return false;
    multiplier.Multiply(stage, at.piece, sums);
    if (ahead.tile < end) multiplier.Load(ahead, stage);
    ahead.Next(warp, warps, pieces);
    const int tile = at.tile;
    at.Next(warp, warps, pieces);
    if (at.tile == tile) return true;
    // Two sets of sums: who adds up the one before last has done so when it comes to this line.
    float4(*const set)[kTiles][32] = shared[(tile - first) % 2];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      set[warp][i][lane] = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
      sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    }
    __syncthreads();
    if ((tile - first) % warps == warp) multiplier.Store(tile, set, warps);
    return true;
  };
  // By constant numbers: stages stay in registers.
  while (step(stages[0]) && step(stages[1]) && step(stages[2]) &&
         (kStages == 3 || step(stages[kStages - 1]))) {
  }
}

using Kernel = void (*)(TilesArgs);

template <int kTiles, int kTokens>
Kernel Choose(bool fp8) {
  return fp8 ? TilesKernel<true, kTiles, kTokens> : TilesKernel<false, kTiles, kTokens>;
}

cudaError_t Prepare(TilesArgs& args, cudaStream_t stream) {
  StoredLinearKernelArgs& call = args.call;
  const int64_t cols = call.weight.cols;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((cols + kPrepareWarps * kCodeGroup - 1) /
                                         (kPrepareWarps * kCodeGroup)),
                   static_cast<unsigned>(call.tokens)),
      .block = dim3(32 * kPrepareWarps)};
  args.x = static_cast<const uint8_t*>(call.prepared);
  if (call.weight.format == StoredFormat::kFp8) {
    args.x_bytes = cols;
    float* const scales =
        reinterpret_cast<float*>(static_cast<uint8_t*>(call.prepared) + call.tokens * cols);
    args.scales = scales;
    return Launch(PrepareCodes, shape, stream, call, scales);
  }
  if (call.x_bf16 && !call.rounds && reinterpret_cast<uintptr_t>(call.x) % 16 == 0 &&
      (call.tokens == 1 || call.x_stride % 8 == 0)) {
    args.x = static_cast<const uint8_t*>(call.x);
    args.x_bytes = call.x_stride * 2;
    return cudaSuccess;
  }
  args.x_bytes = cols * 2;
  args.part_bytes = call.tokens * cols * 2;
  args.parts = call.x_bf16 || call.rounds ? 1 : 3;
  return Launch(PrepareParts, shape, stream, call, args.parts);
}

}  // namespace

cudaError_t LaunchStoredLinearTiles(const StoredLinearKernelArgs& call, int multiprocessors,
                                    cudaStream_t stream) {
  TilesArgs args = {.call = call};
  const bool fp8 = call.weight.format == StoredFormat::kFp8;
  const cudaError_t error = Prepare(args, stream);
  if (error != cudaSuccess) return error;
  const int pieces = call.weight.cols * (fp8 ? 1 : 2) / kRowPieceBytes;
  const int warps = std::min(kMostWarps, pieces);
  const int room = multiprocessors * (warps <= kMostWarps / 2 ? 2 : 1);
  // Turns of 8 rows that the busiest block has.
  const auto turns = [&](int tiles) {
    const int each = tiles * kTileRows;
    return ((call.weight.rows + each - 1) / each + room - 1) / room * tiles;
  };
  const int tiles = turns(1) < turns(2) ? 1 : 2;
  const int all = (call.weight.rows + tiles * kTileRows - 1) / (tiles * kTileRows);
  const int tokens = call.tokens <= 8 ? 8 : 16;
  const Kernel kernel = tokens == 8 ? (tiles == 1 ? Choose<1, 8>(fp8) : Choose<2, 8>(fp8))
                                    : (tiles == 1 ? Choose<1, 16>(fp8) : Choose<2, 16>(fp8));
  return Launch(kernel,
                {.grid = dim3(static_cast<unsigned>(std::min(all, room)),
                              static_cast<unsigned>((call.tokens + tokens - 1) / tokens)),
                 .block = dim3(static_cast<unsigned>(32 * warps))},
                stream, args);
}

}  // namespace millrace
