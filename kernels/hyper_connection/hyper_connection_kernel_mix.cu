// The thin product [tokens, S D] x [S D, rows] of a token's mixing weights, and its sum of squares.
//
// bf16 streams go through the tensor cores without losing anything of f32: an element of fn is the
// sum of three bf16 (8 bits each), so its products are exact and sums are in f32. The fragments of
// mma.m16n8k16 want two neighbours at two places of k; as products may be summed in any order of k,
// each lane takes eight neighbours of A and of B, 16 bytes of x, and calls them four such pairs.
//
// MixPieces: a warp a block, 16 tokens times one piece: few tokens fill the multiprocessors with
//   pieces. fn is split in registers, before the wait for the kernel ahead.
// MixTiles: warps of 32 tokens each, one piece or one group after the other. fn is split once a
//   block, a piece ahead, into shared memory in the order in which lanes read it; x comes through
//   shared memory too, each lane's own words, four chunks of 32 columns ahead. Bounds: one read of
//   x; 18 mma a chunk of 16 tokens.
// MixAny: a block a token and group, any dtype, shape and alignment.
#include <cuda_bf16.h>

#include "kernels/hyper_connection/hyper_connection_kernel.h"
#include "kernels/ptx/copy_async.cuh"
#include "kernels/ptx/fetch_ahead.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kChunk = 32;  // columns that a quad of lanes takes at once
constexpr int kPieceChunks = kHyperPiece / kChunk;
constexpr int kWarpTokens = 32;
// Up to here MixPieces is the faster of the two that make pieces.
constexpr int kFewTokens = 64;
constexpr int kAnyThreads = 256;

// Eight elements of fn, each as the sum of three bf16.
struct Split {
  uint4 low, middle, high;
};

__device__ __forceinline__ float LowOf(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighOf(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// The pair rounded to bf16, which is taken off it; what is left is exact.
__device__ __forceinline__ uint32_t TakeBf16(float& a, float& b) {
  const uint32_t pair = PackBf16(a, b);
  a -= LowOf(pair);
  b -= HighOf(pair);
  return pair;
}

__device__ __forceinline__ Split SplitEight(const uint4 (&raw)[2]) {
  float v[8] = {__uint_as_float(raw[0].x), __uint_as_float(raw[0].y), __uint_as_float(raw[0].z),
                __uint_as_float(raw[0].w), __uint_as_float(raw[1].x), __uint_as_float(raw[1].y),
                __uint_as_float(raw[1].z), __uint_as_float(raw[1].w)};
  uint32_t words[3][4];
#pragma unroll
  for (int part = 0; part < 3; ++part) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[part][i] = TakeBf16(v[2 * i], v[2 * i + 1]);
  }
  return {.low = make_uint4(words[2][0], words[2][1], words[2][2], words[2][3]),
          .middle = make_uint4(words[1][0], words[1][1], words[1][2], words[1][3]),
          .high = make_uint4(words[0][0], words[0][1], words[0][2], words[0][3])};
}

// What a lane holds of the sums of 16 kTiles tokens: products with rows 8n + 2t and 2t + 1, of the
// tokens g and g + 8 of each 16 (kernels/ptx/mma.cuh); and the squares of its own columns.
template <int kTiles, int kRowTiles>
struct Sums {
  float products[kTiles][kRowTiles][4] = {};
  float squares[kTiles][2] = {};

  // One of the three parts of fn.
  __device__ __forceinline__ void AddPart(const uint4 (&a)[kTiles][2],
                                          const uint4 (&b)[kRowTiles]) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        MmaBf16(products[i][n], a[i][0].x, a[i][1].x, a[i][0].y, a[i][1].y, b[n].x, b[n].y);
      }
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        MmaBf16(products[i][n], a[i][0].z, a[i][1].z, a[i][0].w, a[i][1].w, b[n].z, b[n].w);
      }
    }
  }

  __device__ __forceinline__ void AddSquares(const uint4 (&a)[kTiles][2]) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Floats<8> x = Widened(Vec<__nv_bfloat16, 8>{a[i][half]});
#pragma unroll
        for (int e = 0; e < 8; ++e) squares[i][half] = fmaf(x.v[e], x.v[e], squares[i][half]);
      }
    }
  }

  // After a piece: the squares of all its columns, in each lane of a quad.
  __device__ __forceinline__ void GatherSquares() {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        squares[i][half] += __shfl_xor_sync(0xffffffffu, squares[i][half], 1);
        squares[i][half] += __shfl_xor_sync(0xffffffffu, squares[i][half], 2);
      }
    }
  }

  __device__ __forceinline__ void Add(const Sums& other) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) products[i][n][e] += other.products[i][n][e];
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) squares[i][half] += other.squares[i][half];
    }
  }

  __device__ __forceinline__ void Store(const HyperMixKernelArgs& args, int first_token, int part,
                                        int parts) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int token = first_token + 16 * i + 8 * half + lane / 4;
        if (token >= args.streams.tokens) continue;
        float* to = args.sums + (static_cast<int64_t>(token) * parts + part) * (args.rows + 1);
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          const int row = 8 * n + 2 * (lane % 4);
          if (row < args.rows) to[row] = products[i][n][2 * half];
          if (row + 1 < args.rows) to[row + 1] = products[i][n][2 * half + 1];
        }
        if (lane % 4 == 0) to[args.rows] = squares[i][half];
      }
    }
  }
};

// Where this lane's columns of its token begin; a token past the end has the last one's.
__device__ __forceinline__ const __nv_bfloat16* TokenColumns(const HyperStreams& streams,
                                                             int token) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return static_cast<const __nv_bfloat16*>(streams.data) +
         min(token, streams.tokens - 1) * streams.token_stride + lane % 4 * 8;
}

// Elements from a token's first to those of a piece.
__device__ __forceinline__ int64_t PieceOffset(const HyperStreams& streams, int piece) {
  const int k = piece * kHyperPiece;
  const int stream = k / streams.width;
  return stream * streams.stride + (k - stream * streams.width);
}

// This lane's eight elements of fn: of row 8 tile + g; rows past the end repeat the last.
__device__ __forceinline__ void LoadFn(const HyperMixKernelArgs& args, int tile, int column,
                                       uint4 (&raw)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* from =
      args.fn + min(8 * tile + lane / 4, args.rows - 1) * args.fn_stride + column + lane % 4 * 8;
  raw[0] = LoadStream(from);
  raw[1] = LoadStream(from + 4);
}

template <int kRowTiles>
__global__ void __launch_bounds__(32) MixPieces(const __grid_constant__ HyperMixKernelArgs args) {
  const int piece = static_cast<int>(blockIdx.x);
  const int token = static_cast<int>(blockIdx.y) * 16;
  uint4 raw[kPieceChunks][kRowTiles][2];
#pragma unroll
  for (int c = 0; c < kPieceChunks; ++c) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      LoadFn(args, n, piece * kHyperPiece + c * kChunk, raw[c][n]);
    }
  }
  uint4 fn[kPieceChunks][3][kRowTiles];
#pragma unroll
  for (int c = 0; c < kPieceChunks; ++c) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const Split split = SplitEight(raw[c][n]);
      fn[c][0][n] = split.low, fn[c][1][n] = split.middle, fn[c][2][n] = split.high;
    }
  }
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int64_t offset = PieceOffset(args.streams, piece);
  const __nv_bfloat16* const x[2] = {TokenColumns(args.streams, token + g) + offset,
                                     TokenColumns(args.streams, token + g + 8) + offset};
  WaitForPriorGrid();
  StartNextGrid();
  uint4 a[kPieceChunks][1][2];
#pragma unroll
  for (int c = 0; c < kPieceChunks; ++c) {
    a[c][0][0] = LoadStreamAhead(x[0] + c * kChunk);
    a[c][0][1] = LoadStreamAhead(x[1] + c * kChunk);
  }
  Sums<1, kRowTiles> sums;
#pragma unroll
  for (int c = 0; c < kPieceChunks; ++c) {
#pragma unroll
    for (int part = 0; part < 3; ++part) sums.AddPart(a[c], fn[c][part]);
    sums.AddSquares(a[c]);
  }
  sums.GatherSquares();
  sums.Store(args, token, piece, static_cast<int>(gridDim.x));
}

// A piece of fn, the smallest parts first.
template <int kRowTiles>
struct SplitPiece {
  uint4 parts[3][kPieceChunks][kRowTiles][32];
};

template <int kRowTiles, int kWarps>
struct TileShared {
  SplitPiece<kRowTiles> fn[2];
  uint4 x[kPieceChunks][kWarps][4][32];  // a piece's worth, each lane's own
};

template <int kRowTiles, int kWarps>
__device__ __forceinline__ void StagePiece(const HyperMixKernelArgs& args, int piece,
                                           SplitPiece<kRowTiles>& to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int first = 0; first < kRowTiles * kPieceChunks; first += kWarps) {
    const int c = (first + warp) % kPieceChunks, n = (first + warp) / kPieceChunks;
    if (n >= kRowTiles) break;
    uint4 raw[2];
    LoadFn(args, n, piece * kHyperPiece + c * kChunk, raw);
    const Split split = SplitEight(raw);
    to.parts[0][c][n][lane] = split.low;
    to.parts[1][c][n][lane] = split.middle;
    to.parts[2][c][n][lane] = split.high;
  }
}

// Two blocks of eight warps or three of four have room on a multiprocessor.
template <int kRowTiles, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kWarps == 8 ? 2 : 3)
    MixTiles(const __grid_constant__ HyperMixKernelArgs args, int part_pieces) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<TileShared<kRowTiles, kWarps>*>(shared_bytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int token = (static_cast<int>(blockIdx.y) * kWarps + warp) * kWarpTokens;
  const int first = static_cast<int>(blockIdx.x) * part_pieces;
  const int pieces = args.streams.count * args.streams.width / kHyperPiece;
  const int end = min(first + part_pieces, pieces);
  StagePiece<kRowTiles, kWarps>(args, first, shared.fn[0]);
  const __nv_bfloat16* x[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) x[r] = TokenColumns(args.streams, token + 8 * r + lane / 4);
  const auto copy = [&](int chunk, int64_t offset, bool inside) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      CopyAsyncAhead(&shared.x[chunk][warp][r][lane], x[r] + offset + chunk * kChunk, inside);
    }
    CommitCopies();
  };
  WaitForPriorGrid();
#pragma unroll
  for (int c = 0; c < kPieceChunks; ++c) copy(c, PieceOffset(args.streams, first), true);
  Sums<2, kRowTiles> part_sums;
  for (int piece = first; piece < end; ++piece) {
    __syncthreads();  // this piece of fn is there, and everybody is through with the one before
    const bool more = piece + 1 < end;
    if (more) StagePiece<kRowTiles, kWarps>(args, piece + 1, shared.fn[(piece + 1 - first) % 2]);
    const int64_t next = more ? PieceOffset(args.streams, piece + 1) : 0;
    const SplitPiece<kRowTiles>& split = shared.fn[(piece - first) % 2];
    Sums<2, kRowTiles> sums;
#pragma unroll
    for (int c = 0; c < kPieceChunks; ++c) {
      WaitForCopies<kPieceChunks - 1>();
      uint4 a[2][2];
#pragma unroll
      for (int r = 0; r < 4; ++r) a[r / 2][r % 2] = shared.x[c][warp][r][lane];
#pragma unroll 1
      for (int part = 0; part < 3; ++part) {
        uint4 b[kRowTiles];
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) b[n] = split.parts[part][c][n][lane];
        sums.AddPart(a, b);
      }
      sums.AddSquares(a);
      copy(c, next, more);
    }
    sums.GatherSquares();
    part_sums.Add(sums);
  }
  StartNextGrid();
  part_sums.Store(args, token, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

template <typename T>
__global__ void __launch_bounds__(kAnyThreads)
    MixAny(const __grid_constant__ HyperMixKernelArgs args) {
  __shared__ float z[kHyperGroup];
  const int token = static_cast<int>(blockIdx.x), group = static_cast<int>(blockIdx.y);
  const int first = group * kHyperGroup;
  const int size = min(kHyperGroup, args.streams.count * args.streams.width - first);
  const T* x = static_cast<const T*>(args.streams.data) + token * args.streams.token_stride;
  WaitForPriorGrid();
  StartNextGrid();
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kAnyThreads) {
    const int stream = (first + i) / args.streams.width;
    const int column = first + i - stream * args.streams.width;
    z[i] = Widened(LoadVec<1>(x + stream * args.streams.stride + column)).v[0];
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t part = static_cast<int64_t>(token) * gridDim.y + group;
  for (int row = warp; row <= args.rows; row += kAnyThreads / 32) {
    const float* other = row < args.rows ? args.fn + row * args.fn_stride + first : z;
    float sum = 0;
    for (int i = lane; i < size; i += 32) sum = fmaf(z[i], other[i], sum);
    for (int d = 32 / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) args.sums[part * (args.rows + 1) + row] = sum;
  }
}

template <int kRowTiles>
cudaError_t LaunchTensor(HyperMixVariant variant, const HyperMixKernelArgs& args,
                         cudaStream_t stream) {
  const int pieces = args.streams.count * args.streams.width / kHyperPiece;
  const auto blocks = [&](int tokens) {
    return static_cast<unsigned>((args.streams.tokens + tokens - 1) / tokens);
  };
  if (variant == HyperMixVariant::kPieces && args.streams.tokens <= kFewTokens) {
    return Launch(MixPieces<kRowTiles>,
                  {.grid = dim3(static_cast<unsigned>(pieces), blocks(16)), .block = dim3(32)},
                  stream, args);
  }
  const auto tiles = [&](auto kernel, int warps, size_t shared_bytes, int part_pieces) {
    return Launch(kernel,
                  {.grid = dim3(static_cast<unsigned>((pieces + part_pieces - 1) / part_pieces),
                                blocks(warps * kWarpTokens)),
                   .block = dim3(static_cast<unsigned>(32 * warps)),
                   .shared_bytes = shared_bytes},
                  stream, args, part_pieces);
  };
  if (variant == HyperMixVariant::kPieces) {
    return tiles(MixTiles<kRowTiles, 4>, 4, sizeof(TileShared<kRowTiles, 4>), 1);
  }
  return tiles(MixTiles<kRowTiles, 8>, 8, sizeof(TileShared<kRowTiles, 8>), kHyperGroupPieces);
}

}  // namespace

cudaError_t LaunchHyperMix(HyperMixVariant variant, const HyperMixKernelArgs& args,
                           cudaStream_t stream) {
  if (variant == HyperMixVariant::kPieces || variant == HyperMixVariant::kGroups) {
    return args.rows <= 8 ? LaunchTensor<1>(variant, args, stream)
                          : LaunchTensor<kHyperTensorRows / 8>(variant, args, stream);
  }
  const int size = args.streams.count * args.streams.width;
  return Launch(variant == HyperMixVariant::kF32 ? MixAny<float> : MixAny<__nv_bfloat16>,
                {.grid = dim3(static_cast<unsigned>(args.streams.tokens),
                              static_cast<unsigned>((size + kHyperGroup - 1) / kHyperGroup)),
                 .block = dim3(kAnyThreads)},
                stream, args);
}

}  // namespace millrace
