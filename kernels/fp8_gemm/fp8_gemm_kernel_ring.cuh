// The product of up to 8 tokens on Hopper: x [T, K] w', E4M3, the weight coming through shared
// memory, so that much of it is there before the inputs are.
//
// Tiles have kRowTiles times 16 rows of w, a block takes every gridDim-th of them; K is a multiple
// of 128. Its warps take pieces of 128 inputs in turn, each through a ring of kSlots places of its
// own that the copy engine fills across tiles: warps meet at the end of a tile alone. From the ring
// on as fp8_gemm_kernel_skinny.cuh: widened to f16, products by mma.sync, sums of 128 inputs scaled
// and added in f32. Bound by reading w.
//
// Before the wait for the kernel ahead a warp asks for its places one after the other, each when
// the last has come: that much in flight keeps memory busy, more makes the reads of the small
// kernels ahead, whose end everything waits for, stand behind it (README.md).
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_skinny.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"

namespace millrace::fp8_ring {

using fp8_skinny::kLanePad;
using fp8_skinny::kPiece;
using fp8_skinny::Widen;
using fp8_skinny::Widened;
using fp8_skinny::Word;

// kBoxes: parts that a tile's rows consist of, each in one piece in w. kAhead: pieces of x that a
// lane has in registers.
template <int kTiles, int kBoxesOfTile, int kWarpsOfBlock, int kPlaces, int kInputs, int kBlocks>
struct Shape {
  static constexpr int kRowTiles = kTiles;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kBoxes = kBoxesOfTile;
  static constexpr int kBoxRows = kRows / kBoxes;
  static constexpr int kWarps = kWarpsOfBlock;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kSlots = kPlaces;
  static constexpr int kAhead = kInputs;
  static constexpr int kBlocksPerSm = kBlocks;
  static_assert(kBoxRows % 16 == 0);
};

template <typename S>
struct Shared {
  // Rows of 128 bytes, whose 16 bytes lie swizzled.
  uint8_t ring[S::kWarps][S::kSlots][S::kRows * kPiece];
  float parts[S::kWarps][S::kRowTiles][kLanePad * 32];  // the warps' sums of a tile
  uint64_t full[S::kWarps][S::kSlots];
  float x_scale[kFp8GemmSkinnyTokens];  // of vectors
};

// The rows of 8 that lanes g = lane / 4 of a warp read: those of neighbours lie 4 apart, so that
// their halves of 128 bytes, swizzled, are in different banks.
__device__ __forceinline__ int RowOfLane(int g) { return g >> 1 | (g & 1) << 2; }
__device__ __forceinline__ int LaneOfRow(int row) { return (row & 3) << 1 | row >> 2; }

// What a lane needs of x for a piece, and where it finds it.
struct Inputs {
  uint4 codes[2];
  float scale[2];  // of blocks, of tokens 2t and 2t + 1
};
template <bool kBlocks>
struct InputRows {
  const uint8_t* x;
  const float* scale[2];
  int64_t scale_stride;

  __device__ __forceinline__ explicit InputRows(const Fp8GemmKernelArgs& a) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    x = a.x + min(g, a.tokens - 1) * a.x_stride + 16 * t;
    for (int i = 0; i < 2; ++i) scale[i] = a.x_scale + min(2 * t + i, a.tokens - 1);
    scale_stride = a.x_scale_stride;
  }
  __device__ __forceinline__ void Load(int piece, Inputs& in) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      in.codes[i] = LoadInPlace(x + piece * kPiece + 64 * i);
      in.scale[i] = kBlocks ? LoadInPlace(scale[i] + piece * scale_stride) : 1;
    }
  }
};

// Scales of blocks of the weight: lane i has those of its warp's i-th piece, or of the 32nd after
// that, and so on.
template <typename S, bool kBlocks>
struct WeightScales {
  float of_lane[S::kRowTiles] = {};

  template <typename Work>
  __device__ __forceinline__ void Load(const Fp8GemmKernelArgs& a, const Work& work, int tile,
                                       int first_piece) {
    if constexpr (!kBlocks) return;
    const int piece = first_piece + static_cast<int>(threadIdx.x) % 32 * S::kWarps;
    if (piece >= a.inputs / kPiece) return;
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      const int row = work.FirstRow(tile, 16 * r / S::kBoxRows) + 16 * r % S::kBoxRows;
      // Rows past the weight's end have none.
      of_lane[r] =
          __ldg(a.weight_scale + min(row, a.outputs - 1) / kPiece * a.weight_scale_stride + piece);
    }
  }
  __device__ __forceinline__ float Of(int r, int i) const {
    return kBlocks ? __shfl_sync(0xffffffffu, of_lane[r], i % 32) : 1;
  }
};

// part: sums of a piece, of each row tile two rows 8 apart of tokens 2t and 2t + 1. `place`: where
// in a tile's 16 rows the lane's 16 bytes are.
template <int kRowTiles>
__device__ __forceinline__ void Multiply(const uint8_t* rows, int place, const Inputs& in,
                                         float (&part)[kRowTiles][4]) {
  constexpr int kEightRows = 8 * kPiece;
  float odd[kRowTiles][4] = {};  // a second chain of products
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint4 w[2 * kRowTiles];
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      w[r] = *reinterpret_cast<const uint4*>(rows + r * kEightRows + (place ^ 64 * half));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Widened x = Widen(Word(in.codes[half], i));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const Widened top = Widen(Word(w[2 * r], i)), bottom = Widen(Word(w[2 * r + 1], i));
        MmaF16(i % 2 == 0 ? part[r] : odd[r], top.low, bottom.low, top.high, bottom.high, x.low,
               x.high);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) part[r][i] += odd[r][i];
  }
}

// A warp's pieces, in order, from the weight into its ring. For one lane.
template <typename S, typename Work>
struct Feed {
  const CUtensorMap& map;
  const Work& work;
  Shared<S>& shared;
  int warp, pieces;
  int tile, piece;  // next
  int slot = 0, filled = 0;
  uint64_t policy = EvictFirst();  // of what others will want from L2, w displaces nothing

  __device__ __forceinline__ bool HasRoom() const {
    return filled < S::kSlots && tile < work.tiles;
  }

  __device__ __forceinline__ void Ask() {
    uint64_t* const full = &shared.full[warp][slot];
    ArriveExpect(full, S::kRows * kPiece);
#pragma unroll
    for (int b = 0; b < S::kBoxes; ++b) {
      LoadBox2(shared.ring[warp][slot] + b * S::kBoxRows * kPiece, map, full,
               {piece * kPiece, work.FirstRow(tile, b)}, policy);
    }
    ++filled;
    slot = slot + 1 == S::kSlots ? 0 : slot + 1;
    piece += S::kWarps;
    if (piece >= pieces) {
      piece = warp;
      tile += gridDim.x;
    }
  }

  __device__ __forceinline__ void AskInTurn() {
    while (HasRoom()) {
      if (filled > 0) Wait(&shared.full[warp][filled - 1], 0);
      Ask();
    }
  }

  // The oldest place has been read.
  __device__ __forceinline__ void GiveBack() {
    --filled;
    while (HasRoom()) Ask();
  }
};

// A warp's way through the tiles. Work: `tiles`, FirstRow(tile, box) of a box in w, Begin(tile)
// asks for what the end of a tile needs that no kernel writes, Finish(shared, tile) stores it,
// where SumOf() and x_scale are valid.
template <typename S, bool kBlocks, typename Work>
struct Warp {
  const Fp8GemmKernelArgs& args;
  Shared<S>& shared;
  const Work& work;
  const int warp, lane, pieces;
  Feed<S, Work> feed;
  WeightScales<S, kBlocks> weight_scales;
  Inputs in[S::kAhead];
  int slot = 0;
  uint32_t parity = 0;

  static constexpr int kStep = S::kAhead * S::kWarps;

  // Before the wait for the kernel ahead.
  __device__ __forceinline__ void AskAhead() {
    weight_scales.Load(args, work, blockIdx.x, warp);
    if (lane == 0) {
      for (int i = 0; i < S::kSlots; ++i) InitBarrier(&shared.full[warp][i], 1);
      FenceBarrierInit();
      feed.AskInTurn();
    }
    __syncwarp();
  }

  __device__ __forceinline__ void LoadFirstInputs(const InputRows<kBlocks>& rows) {
#pragma unroll
    for (int u = 0; u < S::kAhead; ++u) {
      if (warp + u * S::kWarps < pieces) rows.Load(warp + u * S::kWarps, in[u]);
    }
    if (!kBlocks && threadIdx.x < args.tokens) {
      shared.x_scale[threadIdx.x] = LoadInPlace(args.x_scale + threadIdx.x * args.x_scale_stride);
    }
  }

  // `last`: of the block.
  __device__ __forceinline__ void MultiplyTile(const InputRows<kBlocks>& rows, int tile, bool last,
                                               float (&sums)[S::kRowTiles][4]) {
    const int row = RowOfLane(lane / 4), place = row * kPiece + (lane % 4 ^ row) * 16;
    for (int first = warp, i = 0; first < pieces; first += kStep) {
#pragma unroll
      for (int u = 0; u < S::kAhead; ++u, ++i) {
        const int piece = first + u * S::kWarps;
        if (piece >= pieces) break;
        if (i > 0 && i % 32 == 0) weight_scales.Load(args, work, tile, piece);
        float part[S::kRowTiles][4] = {};
        Wait(&shared.full[warp][slot], parity);
        Multiply(shared.ring[warp][slot], place, in[u], part);
#pragma unroll
        for (int r = 0; r < S::kRowTiles; ++r) {
          const float scale = weight_scales.Of(r, i);
#pragma unroll
          for (int k = 0; k < 4; ++k) sums[r][k] += part[r][k] * (in[u].scale[k % 2] * scale);
        }
        // The next piece, of this tile or of the next one, which may be the same.
        if (piece + kStep < pieces) {
          rows.Load(piece + kStep, in[u]);
        } else if (pieces > kStep && !last) {
          rows.Load(warp + u * S::kWarps, in[u]);
        }
        if (++slot == S::kSlots) slot = 0, parity ^= 1;
        __syncwarp();  // all lanes have read the place
        if (lane == 0) feed.GiveBack();
      }
    }
  }

  __device__ __forceinline__ void StoreSums(const float (&sums)[S::kRowTiles][4]) {
#pragma unroll
    for (int i = 0; i < 4 * S::kRowTiles; ++i) {
      shared.parts[warp][i / 4][lane * kLanePad + i % 4] = sums[i / 4][i % 4];
    }
  }
};

// All threads.
template <typename S, bool kBlocks, typename Work>
__device__ __forceinline__ void Run(const Fp8GemmKernelArgs& args, const CUtensorMap& map,
                                    Shared<S>& shared, Work& work) {
  const int index = threadIdx.x / 32, lane = threadIdx.x % 32, step = static_cast<int>(gridDim.x);
  const int pieces = args.inputs / kPiece, block = static_cast<int>(blockIdx.x);
  const int first_tile = index < pieces ? block : work.tiles;
  Warp<S, kBlocks, Work> warp = {args,
                                 shared,
                                 work,
                                 index,
                                 lane,
                                 pieces,
                                 {map, work, shared, index, pieces, first_tile, index}};
  work.Begin(block);
  warp.AskAhead();
  WaitForPriorGrid();
  StartNextGrid();

  const InputRows<kBlocks> rows(args);
  warp.LoadFirstInputs(rows);
  for (int tile = block; tile < work.tiles; tile += step) {
    const bool last = tile + step >= work.tiles;
    float sums[S::kRowTiles][4] = {};
    warp.MultiplyTile(rows, tile, last, sums);
    if (tile != block) __syncthreads();  // the tile before is stored
    warp.StoreSums(sums);
    __syncthreads();
    work.Finish(shared, tile);
    if (last) break;
    work.Begin(tile + step);
    warp.weight_scales.Load(args, work, tile + step, index);
  }
}

// Of a row of a tile with a token, scaled by blocks or not at all.
template <typename S>
__device__ __forceinline__ float SumOf(const Shared<S>& shared, int row, int token) {
  const int at = (LaneOfRow(row % 8) * 4 + token / 2) * kLanePad + row % 16 / 8 * 2 + token % 2;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < S::kWarps; ++k) sum += shared.parts[k][row / 16][at];
  return sum;
}

// A scale that no kernel writes, asked for where this stands.
__device__ __forceinline__ float LoadScale(const Fp8GemmKernelArgs& args, int output) {
  float scale;
  asm volatile("ld.global.nc.f32 %0, [%1];"
               : "=f"(scale)
               : "l"(args.weight_scale + output * args.weight_scale_stride));
  return scale;
}

}  // namespace millrace::fp8_ring

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_
