// Up to 8 tokens: y [T, N] = x [T, K] w [N, K]', E4M3, the weight going from memory to the tensor
// cores without shared memory, as kernels/tile/skinny_gemm.cuh does it for bf16.
//
// Grid: a block for each 16 outputs, K a multiple of 128. Its warps take pieces of 128 inputs in
// turn. A lane (g = lane / 4, t = lane % 4) loads 16 codes at inputs 16 t of rows g and g + 8,
// which are valid A fragments of two mma.m16n8k32 under a permutation of the inputs; x is loaded by
// the same one. kUnroll pieces are in flight a warp, the first of them from before the dependency
// wait. Sums of 128 inputs are scaled and added in f32 by ordinary arithmetic. Bound by reading w.
#include <cuda_bf16.h>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kRows = 16;    // outputs of a block
constexpr int kPiece = 128;  // inputs a warp takes at once
constexpr int kLanePad = 5;  // floats of a lane's sums: odd, so that lanes meet different banks

// Codes of a piece: rows g and g + 8, first and second 64 inputs.
struct Weights {
  uint4 v[2][2];
};

// What a lane reads.
struct Lane {
  const uint8_t* rows[2];
  const uint8_t* x;
  // Scales of blocks: of tokens 2t and 2t + 1, and of the outputs, from one piece to the next.
  const float* x_scale[2];
  int64_t x_scale_stride;
  const float* weight_scale;
};

__device__ __forceinline__ Lane LocateLane(const Fp8GemmKernelArgs& a, int first_row) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  Lane lane;
  for (int r = 0; r < 2; ++r) {
    const int row = min(first_row + 8 * r + g, a.outputs - 1);  // the excess is not stored
    lane.rows[r] = a.weight + row * a.weight_stride + 16 * t;
    lane.x_scale[r] = a.x_scale + min(2 * t + r, a.tokens - 1);
  }
  lane.x = a.x + min(g, a.tokens - 1) * a.x_stride + 16 * t;
  lane.x_scale_stride = a.x_scale_stride;
  lane.weight_scale = a.weight_scale + first_row / kPiece * a.weight_scale_stride;
  return lane;
}

__device__ __forceinline__ Weights Load(const Lane& lane, int piece) {
  Weights w;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      w.v[r][half] = LoadStream(lane.rows[r] + piece * kPiece + 64 * half);
    }
  }
  return w;
}

// sums: rows g and g + 8 of tokens 2t and 2t + 1.
template <bool kBlocks>
__device__ __forceinline__ void Multiply(const Lane& lane, const Weights& w, int piece,
                                         float (&sums)[4]) {
  float part[4] = {};
#if __CUDA_ARCH__ >= 890  // elsewhere it is never launched
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 x = LoadInPlace(lane.x + piece * kPiece + 64 * half);
    const uint4& low = w.v[0][half];
    const uint4& high = w.v[1][half];
    MmaE4M3(part, {low.x, high.x, low.y, high.y}, x.x, x.y);
    MmaE4M3(part, {low.z, high.z, low.w, high.w}, x.z, x.w);
  }
#endif
  if constexpr (kBlocks) {
    const float weight = __ldg(lane.weight_scale + piece);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float x = LoadInPlace(lane.x_scale[i % 2] + piece * lane.x_scale_stride);
      sums[i] += part[i] * (x * weight);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += part[i];
  }
}

__device__ __forceinline__ void Store(const Fp8GemmKernelArgs& a, int token, int output, float y) {
  const int64_t at = token * a.y_stride + output;
  if (a.y_bf16) {
    static_cast<__nv_bfloat16*>(a.y)[at] = __float2bfloat16(y);
  } else {
    static_cast<float*>(a.y)[at] = y;
  }
}

template <int kWarps, int kUnroll, int kBlocksPerSm, bool kBlocks>
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerSm)
    Skinny(const __grid_constant__ Fp8GemmKernelArgs args) {
  __shared__ float parts[kWarps][kLanePad * 32];
  const int warp = threadIdx.x / 32;
  const int first_row = blockIdx.x * kRows;
  const Lane lane = LocateLane(args, first_row);
  const int pieces = args.inputs / kPiece;
  Weights w[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (warp + u * kWarps < pieces) w[u] = Load(lane, warp + u * kWarps);
  }
  WaitForPriorGrid();
  StartNextGrid();

  float sums[4] = {};
  constexpr int kStep = kUnroll * kWarps;
  for (int first = warp; first < pieces; first += kStep) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int piece = first + u * kWarps;
      if (piece < pieces) Multiply<kBlocks>(lane, w[u], piece, sums);
      if (piece + kStep < pieces) w[u] = Load(lane, piece + kStep);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) parts[warp][threadIdx.x % 32 * kLanePad + i] = sums[i];
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * args.tokens; i += 32 * kWarps) {
    const int row = i % kRows, token = i / kRows;
    const int output = first_row + row;
    if (output >= args.outputs) continue;
    const int at = (row % 8 * 4 + token / 2) * kLanePad + row / 8 * 2 + token % 2;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kWarps; ++k) sum += parts[k][at];
    if constexpr (!kBlocks) {
      sum *= args.x_scale[token * args.x_scale_stride] *
             args.weight_scale[output * args.weight_scale_stride];
    }
    Store(args, token, output, sum);
  }
}

template <int kWarps, int kUnroll, int kBlocksPerSm>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.outputs + kRows - 1) / kRows)),
      .block = dim3(32 * kWarps)};
  return args.blocks ? Launch(Skinny<kWarps, kUnroll, kBlocksPerSm, true>, shape, stream, args)
                     : Launch(Skinny<kWarps, kUnroll, kBlocksPerSm, false>, shape, stream, args);
}

}  // namespace

cudaError_t LaunchFp8GemmSkinny(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                                cudaStream_t stream) {
  // As kernels/tile/skinny_shapes.h: few tiles an SM are all there from the start, and then have
  // the more loads in flight.
  const int tiles = (args.outputs + kRows - 1) / kRows;
  const int tiles_per_sm = (tiles + multiprocessors - 1) / multiprocessors;
  if (tiles_per_sm <= 2) return LaunchWith<8, 4, 2>(args, stream);
  if (tiles_per_sm == 3) return LaunchWith<8, 2, 3>(args, stream);
  return LaunchWith<16, 2, 1>(args, stream);
}

}  // namespace millrace
