// The product of up to 8 tokens: x [T, K] w', E4M3, the weight going from memory to the tensor
// cores without shared memory, as kernels/tile/skinny_gemm.cuh does it for bf16.
//
// A block has kRowTiles tiles of 16 rows of w, K is a multiple of 128. Its warps take pieces of
// 128 inputs in turn. A lane (g = lane / 4, t = lane % 4) loads 16 codes at inputs 16 t of rows g
// and g + 8. Widened to f16, which is exact, each four of them are halves of a valid A fragment of
// mma.m16n8k16 under a permutation of the inputs; x is loaded and widened by the same one. (There
// is no mma of E4M3 on Hopper: the compiler would widen too, and add up by FADD.) kUnroll pieces
// are in flight a warp, the first of them from before the dependency wait. Sums of 128 inputs are
// scaled and added in f32. Bound by reading w.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SKINNY_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SKINNY_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/ptx/fp8_quad.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace::fp8_skinny {

inline constexpr int kPiece = 128;  // inputs a warp takes at once
inline constexpr int kLanePad =
    5;  // floats of a lane's sums: odd, so that lanes meet different banks

// Codes of a piece: of each tile rows g and g + 8, first and second 64 inputs.
template <int kRowTiles>
struct Weights {
  uint4 v[kRowTiles][2][2];
};

// What a lane reads.
template <int kRowTiles>
struct Lane {
  const uint8_t* rows[kRowTiles][2];
  const uint8_t* x;
  // Scales of blocks: of tokens 2t and 2t + 1, and of each tile, from one piece to the next.
  const float* x_scale[2];
  int64_t x_scale_stride;
  const float* weight_scale[kRowTiles];
};

// first_rows: of the tiles. Rows past the weight's end are its last row over again.
template <int kRowTiles>
__device__ __forceinline__ Lane<kRowTiles> LocateLane(const Fp8GemmKernelArgs& a,
                                                      const int (&first_rows)[kRowTiles]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  Lane<kRowTiles> lane;
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    const int row = min(first_rows[r / 2] + r % 2 * 8 + g, a.outputs - 1);
    lane.rows[r / 2][r % 2] = a.weight + row * a.weight_stride + 16 * t;
  }
  for (int i = 0; i < 2; ++i) lane.x_scale[i] = a.x_scale + min(2 * t + i, a.tokens - 1);
  lane.x = a.x + min(g, a.tokens - 1) * a.x_stride + 16 * t;
  lane.x_scale_stride = a.x_scale_stride;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    lane.weight_scale[r] = a.weight_scale + first_rows[r] / kPiece * a.weight_scale_stride;
  }
  return lane;
}

template <int kRowTiles>
__device__ __forceinline__ Weights<kRowTiles> Load(const Lane<kRowTiles>& lane, int piece) {
  Weights<kRowTiles> w;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      w.v[r / 2][r % 2][half] = LoadStream(lane.rows[r / 2][r % 2] + piece * kPiece + 64 * half);
    }
  }
  return w;
}

__device__ __forceinline__ uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// sums: of each tile rows g and g + 8 of tokens 2t and 2t + 1.
template <int kRowTiles, bool kBlocks>
__device__ __forceinline__ void Multiply(const Lane<kRowTiles>& lane, const Weights<kRowTiles>& w,
                                         int piece, float (&sums)[kRowTiles][4]) {
  float part[2][kRowTiles][4] = {};  // two chains of products
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 codes = LoadInPlace(lane.x + piece * kPiece + 64 * half);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const WidenedQuad x = WidenE4M3Quad(Word(codes, i));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const WidenedQuad top = WidenE4M3Quad(Word(w.v[r][0][half], i));
        const WidenedQuad bottom = WidenE4M3Quad(Word(w.v[r][1][half], i));
        MmaF16(part[i % 2][r], top.low, bottom.low, top.high, bottom.high, x.low, x.high);
      }
    }
  }
  float scale[2] = {1, 1};
  if constexpr (kBlocks) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale[i] = LoadInPlace(lane.x_scale[i] + piece * lane.x_scale_stride);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    const float weight = kBlocks ? __ldg(lane.weight_scale[r] + piece) : 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[r][i] += (part[0][r][i] + part[1][r][i]) * (scale[i % 2] * weight);
    }
  }
}

template <int kTiles, int kWarpsOfBlock, int kInFlight, int kBlocksOfSm>
struct Shape {
  static constexpr int kRowTiles = kTiles;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kWarps = kWarpsOfBlock;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kUnroll = kInFlight;
  static constexpr int kBlocksPerSm = kBlocksOfSm;
};

// The warps' sums, each a tile's.
template <typename S>
struct Shared {
  float parts[S::kWarps][S::kRowTiles][kLanePad * 32];
};

// All threads. Afterwards SumOf() is valid in every thread.
template <typename S, bool kBlocks>
__device__ __forceinline__ void Run(const Fp8GemmKernelArgs& args,
                                    const int (&first_rows)[S::kRowTiles], Shared<S>& shared) {
  const int warp = threadIdx.x / 32;
  const Lane<S::kRowTiles> lane = LocateLane<S::kRowTiles>(args, first_rows);
  const int pieces = args.inputs / kPiece;
  Weights<S::kRowTiles> w[S::kUnroll];
#pragma unroll
  for (int u = 0; u < S::kUnroll; ++u) {
    if (warp + u * S::kWarps < pieces) w[u] = Load(lane, warp + u * S::kWarps);
  }
  WaitForPriorGrid();
  StartNextGrid();

  float sums[S::kRowTiles][4] = {};
  constexpr int kStep = S::kUnroll * S::kWarps;
  for (int first = warp; first < pieces; first += kStep) {
#pragma unroll
    for (int u = 0; u < S::kUnroll; ++u) {
      const int piece = first + u * S::kWarps;
      if (piece < pieces) Multiply<S::kRowTiles, kBlocks>(lane, w[u], piece, sums);
      if (piece + kStep < pieces) w[u] = Load(lane, piece + kStep);
    }
  }
#pragma unroll
  for (int i = 0; i < 4 * S::kRowTiles; ++i) {
    shared.parts[warp][i / 4][threadIdx.x % 32 * kLanePad + i % 4] = sums[i / 4][i % 4];
  }
  __syncthreads();
}

// Of a row of the block's tiles with a token, scaled by blocks or not at all.
template <typename S>
__device__ __forceinline__ float SumOf(const Shared<S>& shared, int row, int token) {
  const int at = (row % 8 * 4 + token / 2) * kLanePad + row % 16 / 8 * 2 + token % 2;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < S::kWarps; ++k) sum += shared.parts[k][row / 16][at];
  return sum;
}

}  // namespace millrace::fp8_skinny

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SKINNY_CUH_
