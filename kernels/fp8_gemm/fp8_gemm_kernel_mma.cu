// Products by mma.sync, for GPUs without wgmma (sm_80 and later) and for what the copy engine of
// those with it refuses: tiles of y of 128 columns and 128 or 32 rows, a stage of shared memory for
// each 128 inputs.
//
// From sm_89 on E4M3 is multiplied as it is; before, codes are widened to f16, which is exact. Both
// take the same fragments: a register of four codes becomes two registers of f16 pairs, and as x
// and the weight are cut alike, the order of the inputs within an instruction does not matter.
//
// Tensor cores may keep fewer bits than f32 while they add FP8, so sums of 128 inputs are scaled
// and added up in f32 registers here as in the other kernels.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = 8;
constexpr int kColumns = 128;
constexpr int kDepth = 128;   // inputs of a stage, and of a block with scales of blocks
constexpr int kStages = 3;    // of 32 KiB at most: 96 KiB, what sm_89 has for a block
constexpr int kPiece = 16;    // bytes of a copy, of a row of a matrix load
constexpr int kRowTiles = 2;  // a warp has 32 rows

// The warps lie kRowWarps x (kWarps / kRowWarps) over a tile.
template <int kRowWarps>
struct Tile {
  static constexpr int kRows = 32 * kRowWarps;
  static constexpr int kWarpColumns = kColumns * kRowWarps / kWarps;
  static constexpr int kColumnTiles = kWarpColumns / 8;
  struct Stage {
    uint8_t x[kRows][kDepth];
    uint8_t weight[kColumns][kDepth];
  };
  using Sums = float[kRowTiles][kColumnTiles][4];
};

// Pieces are swizzled so that eight rows of a matrix load meet different banks.
__device__ __forceinline__ uint8_t* Piece(uint8_t (*rows)[kDepth], int row, int piece) {
  return &rows[row][(piece ^ (row & 7)) * kPiece];
}

struct Matrix {
  const uint8_t* data;
  int64_t stride;
  int32_t rows;
};

// Rows `first` to `first + kRows` of a matrix, inputs `k` to `k + kDepth`; zeros beyond its ends.
template <int kRows>
__device__ __forceinline__ void CopyRows(const Matrix& m, int first, int k, int inputs,
                                         uint8_t (*to)[kDepth]) {
  constexpr int kPieces = kDepth / kPiece;
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += 32 * kWarps) {
    const int row = i / kPieces, piece = i % kPieces, at = k + piece * kPiece;
    const bool inside = first + row < m.rows && at < inputs;
    const uint8_t* from = inside ? m.data + (first + row) * m.stride + at : m.data;
    CopyAsync(Piece(to, row, piece), from, inside);
  }
}

// d += A B for a 16 x 32 A and a 32 x 8 B of codes.
#if __CUDA_ARCH__ >= 890
__device__ __forceinline__ void MmaCodes(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  MmaE4M3(d, a, b0, b1);
}
#else
// Codes 2 half and 2 half + 1 of a register as an f16 pair. A code's bits, moved to f16's exponent
// and mantissa, are its value over 2^8; NaN, the magnitude 0x7f, gets the exponent's highest bit.
__device__ __forceinline__ uint32_t Widen(uint32_t codes, int half) {
  const uint32_t pair = __byte_perm(codes, 0, half == 0 ? 0x4140 : 0x4342);
  const uint32_t magnitude = pair & 0x007f007f;
  const uint32_t nan = (magnitude + 0x00010001) & 0x00800080;
  const uint32_t bits = (pair & 0x00800080) << 8 | (magnitude | nan) << 7;
  const __half2 scaled = *reinterpret_cast<const __half2*>(&bits);
  const __half2 wide = __hmul2(scaled, __float2half2_rn(256));
  return *reinterpret_cast<const uint32_t*>(&wide);
}

__device__ __forceinline__ void MmaCodes(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    MmaF16(d, Widen(a[0], half), Widen(a[1], half), Widen(a[2], half), Widen(a[3], half),
           Widen(b0, half), Widen(b1, half));
  }
}
#endif

// One output row of this thread in each of the `kRowTiles` x 2 halves of its fragments.
template <typename F>
__device__ __forceinline__ void ForEachRow(F f) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) f(i, half, 16 * i + 8 * half + threadIdx.x % 32 / 4);
  }
}

// The products of one stage, 128 inputs.
template <int kRowWarps>
__device__ __forceinline__ void Multiply(typename Tile<kRowWarps>::Stage& stage, int row,
                                         int column, typename Tile<kRowWarps>::Sums& sums) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1  // unrolled, fragments of several pieces would not fit into registers
  for (int piece = 0; piece < kDepth / kPiece; piece += 2) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      LoadMatrices(Piece(stage.x, row + 16 * i + lane % 16, piece + lane / 16), a[i]);
    }
#pragma unroll
    for (int j = 0; j < Tile<kRowWarps>::kColumnTiles; j += 2) {
      uint32_t b[4];
      LoadMatrices(
          Piece(stage.weight, column + 8 * j + lane / 16 * 8 + lane % 8, piece + lane / 8 % 2), b);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MmaCodes(sums[i][j], a[i], b[0], b[1]);
        MmaCodes(sums[i][j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// What the sums of a stage's 128 inputs count, for each of the thread's rows; the weight's blocks
// are as wide as tiles.
struct StageScales {
  float of_row[kRowTiles][2];
};

__device__ __forceinline__ StageScales ScalesOf(const Fp8GemmKernelArgs& a, int row, int block) {
  StageScales scales;
  const float of_weight = a.weight_scale[blockIdx.x * a.weight_scale_stride + block];
  ForEachRow([&](int i, int half, int r) {
    const int token = min(row + r, a.tokens - 1);
    scales.of_row[i][half] = of_weight * a.x_scale[block * a.x_scale_stride + token];
  });
  return scales;
}

template <typename T>
__device__ __forceinline__ T Rounded(float v) {
  if constexpr (sizeof(T) == 2) {
    return __float2bfloat16(v);
  } else {
    return v;
  }
}

// Writes this thread's outputs; scales of vectors count here.
template <int kRowWarps, typename T>
__device__ __forceinline__ void Store(const Fp8GemmKernelArgs& args, int row, int column,
                                      const typename Tile<kRowWarps>::Sums& sums) {
  ForEachRow([&](int i, int half, int r) {
    const int token = row + r;
    if (token >= args.tokens) return;
    const float x_scale = args.blocks ? 1 : args.x_scale[token * args.x_scale_stride];
    T* const to = static_cast<T*>(args.y) + token * args.y_stride;
#pragma unroll
    for (int j = 0; j < Tile<kRowWarps>::kColumnTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int output = column + 8 * j + 2 * (threadIdx.x % 4) + e;
        if (output >= args.outputs) continue;
        const float weight_scale =
            args.blocks ? 1 : args.weight_scale[output * args.weight_scale_stride];
        float sum = sums[i][j][2 * half + e] * (x_scale * weight_scale);
        if (HasAddends(args)) sum = WithAddends(args, token, output, sum);
        to[output] = Rounded<T>(sum);
      }
    }
  });
}

template <int kRowWarps>
__global__ void __launch_bounds__(32 * kWarps, 1)
    Fp8GemmMma(const __grid_constant__ Fp8GemmKernelArgs args) {
  using T = Tile<kRowWarps>;
  extern __shared__ uint4 dynamic_shared[];
  auto* const stages = reinterpret_cast<typename T::Stage*>(dynamic_shared);
  const int warp = threadIdx.x / 32;
  const int warp_row = warp % kRowWarps * 32, warp_column = warp / kRowWarps * T::kWarpColumns;
  const int first_column = blockIdx.x * kColumns;
  const Matrix x = {args.x, args.x_stride, args.tokens};
  const Matrix weight = {args.weight, args.weight_stride, args.outputs};
  const int depth = (args.inputs + kDepth - 1) / kDepth;
  WaitForPriorGrid();
  StartNextGrid();

  for (int first = blockIdx.y * T::kRows; first < args.tokens; first += gridDim.y * T::kRows) {
    const auto fetch = [&](int block) {
      if (block < depth) {
        typename T::Stage& to = stages[block % kStages];
        CopyRows<T::kRows>(x, first, block * kDepth, args.inputs, to.x);
        CopyRows<kColumns>(weight, first_column, block * kDepth, args.inputs, to.weight);
      }
      CommitCopies();
    };
    for (int block = 0; block < kStages - 1; ++block) fetch(block);
    typename T::Sums total = {};
    for (int block = 0; block < depth; ++block) {
      StageScales scales = {{{1, 1}, {1, 1}}};
      if (args.blocks) scales = ScalesOf(args, first + warp_row, block);
      WaitForCopies<kStages - 2>();
      __syncthreads();  // the block's bytes are there, and nobody reads the stage fetched next
      fetch(block + kStages - 1);
      typename T::Sums sums = {};
      Multiply<kRowWarps>(stages[block % kStages], warp_row, warp_column, sums);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < T::kColumnTiles; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            total[i][j][e] += sums[i][j][e] * scales.of_row[i][e / 2];
          }
        }
      }
    }
    __syncthreads();  // before the stages are filled anew
    if (args.y_bf16) {
      Store<kRowWarps, __nv_bfloat16>(args, first + warp_row, first_column + warp_column, total);
    } else {
      Store<kRowWarps, float>(args, first + warp_row, first_column + warp_column, total);
    }
  }
}

template <int kRowWarps>
cudaError_t LaunchTiles(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  using T = Tile<kRowWarps>;
  constexpr int kMaxGridY = 65535;
  const int rows = (args.tokens + T::kRows - 1) / T::kRows;
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>((args.outputs + kColumns - 1) / kColumns),
                   static_cast<unsigned>(rows < kMaxGridY ? rows : kMaxGridY)),
      .block = dim3(32 * kWarps),
      .shared_bytes = kStages * sizeof(typename T::Stage)};
  return Launch(Fp8GemmMma<kRowWarps>, shape, stream, args);
}

}  // namespace

cudaError_t LaunchFp8GemmMma(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  return args.tokens <= Tile<1>::kRows ? LaunchTiles<1>(args, stream)
                                       : LaunchTiles<4>(args, stream);
}

}  // namespace millrace
