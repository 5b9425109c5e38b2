// The product of few tokens with a weight matrix that is read once: x [T, K] W^T, W [N, K], both
// bf16, T <= 8 kTokenTiles, f32 sums. Bound by reading W.
//
// A block takes kRowTiles tiles of 16 rows of W; its warps take pieces of 64 inputs in turn. A lane
// (g = lane / 4, t = lane % 4) loads 16 bytes at inputs 8t of rows g and g + 8, which is a valid A
// fragment of mma.m16n8k16 under a permutation of the inputs; loading x by the same permutation
// makes the product right, so weights go from memory to the tensor cores without shared memory.
// kUnroll pieces are in flight per warp, the first of them from before the dependency wait.
#ifndef KERNELS_TILE_SKINNY_GEMM_CUH_
#define KERNELS_TILE_SKINNY_GEMM_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/tile/skinny_shapes.h"

namespace millrace {

// Strides in elements. Rows of x and weight start on 16 bytes; inputs is a multiple of kPiece.
struct SkinnyOperands {
  const __nv_bfloat16* x = nullptr;
  const __nv_bfloat16* weight = nullptr;
  int64_t x_stride = 0;
  int64_t weight_stride = 0;
  int32_t tokens = 0;
  int32_t inputs = 0;
  int32_t outputs = 0;
};

template <int kRowTiles, int kTokenTiles, int kWarps, int kUnroll>
class SkinnyGemm {
 public:
  static constexpr int kRows = 16 * kRowTiles;     // of W, a block
  static constexpr int kTokens = 8 * kTokenTiles;  // at most
  static constexpr int kThreads = 32 * kWarps;

  static constexpr int kPiece = 64;      // inputs a warp takes at once: two loads a lane and row
  static constexpr int kLaneStride = 5;  // floats; odd, so that lanes meet different banks

  // The warps' sums; one a block.
  struct Shared {
    float parts[kWarps][kRowTiles * kTokenTiles][kLaneStride * 32];
  };

  // All threads. Afterwards Sum() is valid in every thread.
  static __device__ __forceinline__ void Run(const SkinnyOperands& a, int first_row,
                                             Shared& shared) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const __nv_bfloat16* rows[kRowTiles][2];
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      const int row = min(first_row + 8 * r + lane / 4, a.outputs - 1);  // the excess is not stored
      rows[r / 2][r % 2] = a.weight + row * a.weight_stride + lane % 4 * 8;
    }
    const __nv_bfloat16* tokens[kTokenTiles];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const int token = min(lane / 4 + 8 * n, a.tokens - 1);  // likewise
      tokens[n] = a.x + token * a.x_stride + lane % 4 * 8;
    }
    const int pieces = a.inputs / kPiece;
    Weights w[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (warp + u * kWarps < pieces) w[u] = Load(rows, warp + u * kWarps);
    }
    WaitForPriorGrid();
    StartNextGrid();

    float sums[kRowTiles][kTokenTiles][4] = {};
    constexpr int kStep = kUnroll * kWarps;
    const int rounds = pieces / kStep;  // in which every warp has all its pieces: no checks
    int first = warp;
    for (int r = 0; r + 1 < rounds; ++r, first += kStep) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        Multiply(w[u], LoadInputs(tokens, first + u * kWarps), sums);
        w[u] = Load(rows, first + u * kWarps + kStep);
      }
    }
    if (rounds > 0) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int piece = first + u * kWarps;
        Multiply(w[u], LoadInputs(tokens, piece), sums);
        if (piece + kStep < pieces) w[u] = Load(rows, piece + kStep);
      }
      first += kStep;
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int piece = first + u * kWarps;
      if (piece < pieces) Multiply(w[u], LoadInputs(tokens, piece), sums);
    }
    float* parts = shared.parts[warp][0] + lane * kLaneStride;
#pragma unroll
    for (int i = 0; i < kRowTiles * kTokenTiles * 4; ++i) {
      parts[i / 4 * 32 * kLaneStride + i % 4] =
          sums[i / 4 / kTokenTiles][i / 4 % kTokenTiles][i % 4];
    }
    __syncthreads();
  }

  // x . W[first_row + row] of one token, in the same order of additions whoever calls.
  static __device__ __forceinline__ float Sum(const Shared& shared, int row, int token) {
    const int tile = row / 16 * kTokenTiles + token / 8;
    const int lane = row % 8 * 4 + token % 8 / 2;
    const int at = lane * kLaneStride + row % 16 / 8 * 2 + token % 2;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += shared.parts[w][tile][at];
    return sum;
  }

 private:
  struct Weights {
    uint4 v[kRowTiles][2][2];  // [tile][rows g, g + 8][first, second 32 inputs]
  };

  struct Inputs {
    uint4 v[kTokenTiles][2];
  };

  static __device__ __forceinline__ Weights Load(const __nv_bfloat16* const (&rows)[kRowTiles][2],
                                                 int piece) {
    Weights w;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < 2 * kRowTiles; ++r) {
        w.v[r / 2][r % 2][half] = LoadStream(rows[r / 2][r % 2] + piece * kPiece + 32 * half);
      }
    }
    return w;
  }

  static __device__ __forceinline__ Inputs
  LoadInputs(const __nv_bfloat16* const (&tokens)[kTokenTiles], int piece) {
    Inputs x;
#pragma unroll
    for (int i = 0; i < 2 * kTokenTiles; ++i) {
      const __nv_bfloat16* from = tokens[i / 2] + piece * kPiece + 32 * (i % 2);
      x.v[i / 2][i % 2] = LoadInPlace(from);
    }
    return x;
  }

  static __device__ __forceinline__ void Multiply(const Weights& w, const Inputs& x,
                                                  float (&sums)[kRowTiles][kTokenTiles][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const uint4& v = x.v[n][half];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          const uint4& low = w.v[r][0][half];
          const uint4& high = w.v[r][1][half];
          MmaBf16(sums[r][n], low.x, high.x, low.y, high.y, v.x, v.y);
          MmaBf16(sums[r][n], low.z, high.z, low.w, high.w, v.z, v.w);
        }
      }
    }
  }
};

// Of one of kSkinnyShapes.
template <int kShape>
struct SkinnyTraits {
  static constexpr SkinnyShape kS = kSkinnyShapes[kShape];
  using Gemm = SkinnyGemm<kS.row_tiles, kS.token_tiles, kS.warps, kS.unroll>;
  static constexpr int kBlocksPerSm = kS.blocks_per_sm;
};

}  // namespace millrace

#endif  // KERNELS_TILE_SKINNY_GEMM_CUH_
