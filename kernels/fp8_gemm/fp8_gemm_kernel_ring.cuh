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
// kernels ahead, whose end everything waits for, stand behind it (few_tokens.md). It may widen its
// first piece there too: where all of w is in the rings by then, widening is what takes the time
// that remains.
//
// x comes as codes, or as a row of bf16 that every block quantises for itself, all of its threads
// at once (kernels/quantize_fp8_gemm).
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_skinny.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/fp8_quad.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/quantize/encode.cuh"

namespace millrace::fp8_ring {

using fp8_skinny::kLanePad;
using fp8_skinny::kPiece;
using fp8_skinny::Word;

// kBoxes: parts that a tile's rows consist of, each in one piece in w. kAhead: pieces of x that a
// lane has in registers. kWidened: halves of a warp's first piece that are widened before the wait.
// kRowWords: eights of bf16 of x that a thread quantises, 0 where x comes as codes.
template <int kTiles, int kBoxesOfTile, int kWarpsOfBlock, int kPlaces, int kInputs, int kBlocks,
          int kHalves = 0, int kWords = 0>
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
  static constexpr int kWidened = kHalves;
  static constexpr int kRowWords = kWords;
  static constexpr int kMostInputs = kThreads * kRowWords * kCodeWidth;  // of a row of bf16
  static_assert(kBoxRows % 16 == 0);
};

template <typename S>
struct Shared {
  // Rows of 128 bytes, whose 16 bytes lie swizzled.
  uint8_t ring[S::kWarps][S::kSlots][S::kRows * kPiece];
  float parts[S::kWarps][S::kRowTiles][kLanePad * 32];  // the warps' sums of a tile
  static_assert(S::kMostInputs <= sizeof(parts));
  // The row that the block has quantised: in the place of the sums, so a block has one tile.
  __device__ __forceinline__ uint8_t* Row() { return reinterpret_cast<uint8_t*>(parts); }
  uint64_t full[S::kWarps][S::kSlots];
  float x_scale[kFp8GemmSkinnyTokens];  // of vectors
  // Of vectors each thread's own of every box, in the first; of blocks each warp's of every row
  // tile, of this tile and the next in turns.
  float weight_scale[2][S::kRowTiles][S::kThreads];
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
  const uint8_t* x;       // of the warp's first piece
  const float* scale[2];  // of blocks as x; of vectors the thread's own, in the first
  int64_t scale_stride;

  __device__ __forceinline__ explicit InputRows(const Fp8GemmKernelArgs& a) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int piece = static_cast<int>(threadIdx.x) / 32;
    scale_stride = a.x_scale_stride;
    x = a.x + min(g, a.tokens - 1) * a.x_stride + 16 * t + piece * kPiece;
    for (int i = 0; i < 2; ++i) {
      scale[i] = a.x_scale + (kBlocks ? min(2 * t + i, a.tokens - 1) + piece * scale_stride
                                      : threadIdx.x * scale_stride);
    }
    // Here, not where they are first used: once there are inputs all wait for their loads.
    asm volatile("" : "+l"(x), "+l"(scale[0]));
    if (kBlocks) asm volatile("" : "+l"(scale[1]));
  }
  // Of the piece that `past` + `more` are after the first; with constants `more` all have one
  // address.
  __device__ __forceinline__ void Load(int past, int more, Inputs& in) const {
    const uint8_t* const from = x + past * kPiece;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      in.codes[i] = LoadInPlace(from + more * kPiece + 64 * i);
      if (kBlocks) in.scale[i] = LoadInPlace(scale[i] + (past + more) * scale_stride);
    }
  }
};

// The row of bf16 becomes codes with a scale, as Quantize() makes them of a token. All threads.
template <typename S>
__device__ __forceinline__ void QuantizeRow(const Fp8GemmKernelArgs& args, Shared<S>& shared) {
  using Word = Vec<__nv_bfloat16, kCodeWidth>;
  constexpr int kStep = S::kThreads * kCodeWidth;
  const int first = static_cast<int>(threadIdx.x) * kCodeWidth;
  Word words[S::kRowWords];
#pragma unroll
  for (int n = 0; n < S::kRowWords; ++n) {
    const int i = first + n * kStep;
    words[n] = i < args.inputs ? Word{LoadInPlace(args.x + i * sizeof(__nv_bfloat16))} : Word{};
  }
  float amax = 0;
#pragma unroll
  for (const Word& word : words) amax = fmaxf(amax, Amax(millrace::Widened(word)));
  const float scale = ScaleOf(BlockMax(amax), CodeArgs());
  const float inverse = InverseOf(scale);
  if (threadIdx.x == 0) shared.x_scale[0] = scale;
#pragma unroll
  for (int n = 0; n < S::kRowWords; ++n) {
    const int i = first + n * kStep;
    if (i >= args.inputs) continue;
    *reinterpret_cast<uint2*>(shared.Row() + i) =
        Encode(millrace::Widened(words[n]), inverse, /*e5m2=*/false);
  }
  __syncthreads();
}

// Asks for a tile's scales of w, which no kernel writes; CommitCopies() ends it. Not by ordinary
// loads: the warp would wait for them where it next waits for x, and they come from memory. Of
// blocks, lane i gets those of the i-th piece of its warp, counted from the given one; of vectors
// every thread its own row's of each box.
template <typename S, bool kBlocks, typename Work>
__device__ __forceinline__ void AskForScales(const Fp8GemmKernelArgs& a, const Work& work, int tile,
                                             int piece, float (&to)[S::kRowTiles][S::kThreads]) {
  const int thread = threadIdx.x;
  // Rows past the weight's end have none.
  const auto copy = [&](int i, int row, int column) {
    const int64_t at = min(row, a.outputs - 1) / (kBlocks ? kPiece : 1) * a.weight_scale_stride;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(SharedAddress(&to[i][thread])),
                 "l"(a.weight_scale + at + column)
                 : "memory");
  };
  if constexpr (kBlocks) {
    piece += thread % 32 * S::kWarps;
    if (piece >= a.inputs / kPiece) return;
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      copy(r, work.FirstRow(tile, 16 * r / S::kBoxRows) + 16 * r % S::kBoxRows, piece);
    }
  } else {
#pragma unroll
    for (int b = 0; b < S::kBoxes; ++b) {
      copy(b, work.FirstRow(tile, b) + thread % S::kBoxRows, 0);
    }
  }
}

// Rows 8 r to 8 r + 7 of a tile, four codes at inputs 4 i after the lane's first.
template <int kRowTiles>
using WideHalf = WidenedQuad[2 * kRowTiles][4];

// 64 inputs of a piece. `place`: where in 16 rows of the ring the lane's 16 bytes are.
template <int kRowTiles>
__device__ __forceinline__ void WidenHalf(const uint8_t* rows, int place,
                                          WideHalf<kRowTiles>& wide) {
  constexpr int kEightRows = 8 * kPiece;
  uint4 codes[2 * kRowTiles];
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    codes[r] = *reinterpret_cast<const uint4*>(rows + r * kEightRows + place);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) wide[r][i] = WidenE4M3Quad(Word(codes[r], i));
  }
}

// Adds to two chains of sums, of each row tile two rows 8 apart of tokens 2t and 2t + 1.
template <int kRowTiles>
__device__ __forceinline__ void MultiplyHalf(const WideHalf<kRowTiles>& w, const uint4& codes,
                                             float (&part)[2][kRowTiles][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const WidenedQuad x = WidenE4M3Quad(Word(codes, i));
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const WidenedQuad &top = w[2 * r][i], &bottom = w[2 * r + 1][i];
      MmaF16(part[i % 2][r], top.low, bottom.low, top.high, bottom.high, x.low, x.high);
    }
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

// A warp's way through the tiles. Work: `tiles`, FirstRow(tile, box) of a box in w, Finish(shared,
// tile) stores a tile, where SumOf(), x_scale and the thread's weight_scale are valid.
template <typename S, bool kBlocks, typename Work>
struct Warp {
  const Fp8GemmKernelArgs& args;
  Shared<S>& shared;
  const Work& work;
  const int warp, lane, pieces;
  Feed<S, Work> feed;
  Inputs (&in)[S::kAhead];  // a member would be set to zeros while all wait for its loads
  int slot = 0;
  int done = 0;  // pieces of the tile
  uint32_t parity = 0;

  static constexpr int kStep = S::kAhead * S::kWarps;
  using Half = WideHalf<S::kRowTiles>;

  __device__ __forceinline__ void AskForScalesOf(int tile, int piece, int buffer) const {
    AskForScales<S, kBlocks>(args, work, tile, piece, shared.weight_scale[buffer]);
    CommitCopies();
  }

  // Before the wait for the kernel ahead.
  __device__ __forceinline__ void AskAhead() {
    AskForScalesOf(blockIdx.x, warp, 0);
    if (lane == 0) {
      for (int i = 0; i < S::kSlots; ++i) InitBarrier(&shared.full[warp][i], 1);
      FenceBarrierInit();
      feed.AskInTurn();
    }
    __syncwarp();
  }

  // Where the lane's 16 bytes of the oldest place are: in row 0 and 8 of each row tile.
  __device__ __forceinline__ const uint8_t* Oldest() const { return shared.ring[warp][slot]; }
  __device__ __forceinline__ int Place(int half) const {
    const int row = RowOfLane(lane / 4);
    return (row * kPiece + (lane % 4 ^ row) * 16) ^ 64 * half;
  }

  // Some of the first piece, before the wait for the kernel ahead.
  __device__ __forceinline__ void WidenAhead(Half* ahead) const {
    if (warp >= pieces) return;
    Wait(&shared.full[warp][0], 0);
#pragma unroll
    for (int half = 0; half < S::kWidened; ++half) {
      WidenHalf<S::kRowTiles>(Oldest(), Place(half), ahead[half]);
    }
  }

  // Of kAhead pieces at once, from the given one on: a warp that waits for one load waits for all.
  __device__ __forceinline__ void LoadInputs(const InputRows<kBlocks>& rows, int first) const {
#pragma unroll
    for (int u = 0; u < S::kAhead; ++u) {
      const bool has = S::kRowWords == 0 && first + u * S::kWarps < pieces;
      if (has) rows.Load(first - warp, u * S::kWarps, in[u]);
    }
  }

  // The u-th of them.
  __device__ __forceinline__ Inputs InputsOf(int piece, int u) const {
    if (S::kRowWords == 0) return in[u];
    const uint8_t* const from = shared.Row() + piece * kPiece + 16 * (lane % 4);
    return {{*reinterpret_cast<const uint4*>(from), *reinterpret_cast<const uint4*>(from + 64)}};
  }

  // Of tokens, with the first inputs.
  __device__ __forceinline__ void LoadInputScales(const InputRows<kBlocks>& rows) const {
    if (kBlocks || S::kRowWords > 0 || threadIdx.x >= args.tokens) return;
    shared.x_scale[threadIdx.x] = LoadInPlace(rows.scale[0]);
  }

  // The warp's i-th piece of a tile, whose scales are in the buffer. kWidened halves of it are in
  // `ahead`.
  template <int kWidened>
  __device__ __forceinline__ void MultiplyPiece(const Inputs& x, const Half* ahead, int i,
                                                int buffer, float (&sums)[S::kRowTiles][4]) {
    float part[2][S::kRowTiles][4] = {};
    if (kWidened == 0) Wait(&shared.full[warp][slot], parity);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half < kWidened) {
        MultiplyHalf<S::kRowTiles>(ahead[half], x.codes[half], part);
      } else {
        Half wide;
        WidenHalf<S::kRowTiles>(Oldest(), Place(half), wide);
        MultiplyHalf<S::kRowTiles>(wide, x.codes[half], part);
      }
    }
#pragma unroll
    for (int r = 0; r < S::kRowTiles; ++r) {
      const float scale = kBlocks ? shared.weight_scale[buffer][r][warp * 32 + i % 32] : 1.0f;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float sum = part[0][r][k] + part[1][r][k];
        sums[r][k] += kBlocks ? sum * (x.scale[k % 2] * scale) : sum;
      }
    }
    if (++slot == S::kSlots) slot = 0, parity ^= 1;
    __syncwarp();  // all lanes have read the place
    if (lane == 0) feed.GiveBack();
  }

  // What is not done. `last`: of the block.
  __device__ __forceinline__ void MultiplyTile(const InputRows<kBlocks>& rows, int tile, bool last,
                                               int buffer, float (&sums)[S::kRowTiles][4]) {
    for (int first = warp, i = 0; first < pieces; first += kStep) {
#pragma unroll
      for (int u = 0; u < S::kAhead; ++u, ++i) {
        const int piece = first + u * S::kWarps;
        if (piece >= pieces) break;
        if (i < done) continue;
        if (kBlocks && i > 0 && i % 32 == 0) {
          AskForScalesOf(tile, piece, buffer);
          WaitForCopies<0>();
          __syncwarp();
        }
        MultiplyPiece<0>(InputsOf(piece, u), nullptr, i, buffer, sums);
      }
      if (first + kStep < pieces) {
        LoadInputs(rows, first + kStep);
      } else if (pieces > kStep && !last) {
        LoadInputs(rows, warp);
      }
    }
    done = 0;
  }

  // The first piece, of which some is widened.
  __device__ __forceinline__ void MultiplyWidened(const Half* ahead,
                                                  float (&sums)[S::kRowTiles][4]) {
    if (warp >= pieces) return;
    if (kBlocks) {
      WaitForCopies<0>();
      __syncwarp();
    }
    MultiplyPiece<S::kWidened>(InputsOf(warp, 0), ahead, 0, 0, sums);
    done = 1;
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
                                    Shared<S>& shared, const Work& work) {
  const int index = threadIdx.x / 32, lane = threadIdx.x % 32, step = static_cast<int>(gridDim.x);
  const int pieces = args.inputs / kPiece, block = static_cast<int>(blockIdx.x);
  const int first_tile = index < pieces ? block : work.tiles;
  Inputs in[S::kAhead];
  Warp<S, kBlocks, Work> warp = {args,
                                 shared,
                                 work,
                                 index,
                                 lane,
                                 pieces,
                                 {map, work, shared, index, pieces, first_tile, index},
                                 in};
  warp.AskAhead();
  WideHalf<S::kRowTiles> ahead[S::kWidened > 0 ? S::kWidened : 1];
  if constexpr (S::kWidened > 0) warp.WidenAhead(ahead);
  const InputRows<kBlocks> rows(args);
  WaitForPriorGrid();
  StartNextGrid();

  if constexpr (S::kRowWords > 0) QuantizeRow(args, shared);
  warp.LoadInputs(rows, index);
  warp.LoadInputScales(rows);
  int buffer = 0;
  float sums[S::kRowTiles][4] = {};
  if constexpr (S::kWidened > 0) warp.MultiplyWidened(ahead, sums);
  for (int tile = block; tile < work.tiles; tile += step, buffer ^= kBlocks) {
    const bool last = tile + step >= work.tiles;
    if constexpr (kBlocks) {
      WaitForCopies<0>();
      __syncwarp();
      if (!last) warp.AskForScalesOf(tile + step, index, buffer ^ 1);
    }
    warp.MultiplyTile(rows, tile, last, buffer, sums);
    // The tile before is stored, and all have read the row.
    if (tile != block || S::kRowWords > 0) __syncthreads();
    warp.StoreSums(sums);
#pragma unroll
    for (auto& row_tile : sums) {
#pragma unroll
      for (float& sum : row_tile) sum = 0;
    }
    if constexpr (!kBlocks) WaitForCopies<0>();  // of the thread's own
    __syncthreads();
    work.Finish(shared, tile);
    if (!kBlocks && !last) warp.AskForScalesOf(tile + step, index, 0);
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

}  // namespace millrace::fp8_ring

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_RING_CUH_
