// Units along the columns of x, and codes of x'. A block takes strips of 32 columns, 128 tokens at
// a time: four threads a token, eight columns each, two tokens a thread. Codes that are to be
// turned go through shared memory, so that they leave in whole rows of 128. Groups: a block a tile
// of 128 x 32. Channels: a block a strip, read twice. Tensor: a block a tile, the maxima of all
// found before. Bound by memory.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/quantize/quantize_kernel.h"
#include "kernels/quantize/quantize_kernel_load.cuh"

namespace millrace {
namespace {

constexpr int kThreads = kQuantizeThreads;
constexpr int kCols = 32;     // of a strip
constexpr int kTokens = 128;  // of a tile
constexpr int kQuads = kCols / kCodeWidth;
constexpr int kPasses = kTokens * kQuads / kThreads;

using Eight = Floats<kCodeWidth>;
struct Tile {
  Eight x[kPasses];
};

// Where this thread's elements of a tile are.
__device__ __forceinline__ int TokenOf(int pass) {
  return pass * (kThreads / kQuads) + static_cast<int>(threadIdx.x) / kQuads;
}
__device__ __forceinline__ int ColumnOf() {
  return static_cast<int>(threadIdx.x) % kQuads * kCodeWidth;
}

template <typename Traits>
__device__ __forceinline__ Tile LoadTile(const QuantizeKernelArgs& args, int token, int column) {
  Tile tile;
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const int t = token + TokenOf(p);
    tile.x[p] = t < args.tokens ? LoadEight<Traits>(args, t, column + ColumnOf()) : Eight{};
  }
  return tile;
}

__device__ __forceinline__ void AddMagnitudes(const Tile& tile, Eight& amax) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
#pragma unroll
    for (int j = 0; j < kCodeWidth; ++j) amax.v[j] = fmaxf(amax.v[j], fabsf(tile.x[p].v[j]));
  }
}

// From the maxima of each thread's eight columns those of the block: their scales, stored at
// `scales` + column, and the reciprocals of this thread's.
__device__ __forceinline__ Eight ScaleColumns(const QuantizeKernelArgs& args, Eight amax,
                                              int column, float* scales) {
  __shared__ float parts[kThreads / 32][kCols];
#pragma unroll
  for (int j = 0; j < kCodeWidth; ++j) {
#pragma unroll
    for (int d = kQuads; d < 32; d *= 2) {
      amax.v[j] = fmaxf(amax.v[j], __shfl_xor_sync(0xffffffffu, amax.v[j], d));
    }
  }
  if (threadIdx.x % 32 < kQuads) {
#pragma unroll
    for (int j = 0; j < kCodeWidth; ++j) parts[threadIdx.x / 32][ColumnOf() + j] = amax.v[j];
  }
  __syncthreads();
  if (threadIdx.x < kCols) {
    float most = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) most = fmaxf(most, parts[w][threadIdx.x]);
    const float scale = ScaleOf(most, args.out);
    const int at = column + static_cast<int>(threadIdx.x);
    if (at < args.size) scales[at] = scale;
    parts[0][threadIdx.x] = InverseOf(scale);  // no other thread reads this column's maxima
  }
  __syncthreads();
  Eight inverse;
#pragma unroll
  for (int j = 0; j < kCodeWidth; ++j) inverse.v[j] = parts[0][ColumnOf() + j];
  return inverse;
}

__device__ __forceinline__ uint2 EncodeColumns(const Eight& x, const Eight& inverse, bool e5m2) {
  Eight scaled;
#pragma unroll
  for (int j = 0; j < kCodeWidth; ++j) scaled.v[j] = __fmul_rn(x.v[j], inverse.v[j]);
  return Encode(scaled, 1, e5m2);
}

template <typename Traits>
__device__ __forceinline__ void StoreTile(const QuantizeKernelArgs& args, const Tile& tile,
                                          const Eight& inverse, int token, int column) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const int t = token + TokenOf(p);
    if (t >= args.tokens) continue;
    StoreEight<Traits>(args.out, t, column + ColumnOf(),
                       EncodeColumns(tile.x[p], inverse, args.out.e5m2));
  }
}

// Rows of the turned tile lie 33 words apart, so that neither the bytes that a warp writes nor the
// words that it reads meet in a bank.
template <typename Traits>
__device__ __forceinline__ void StoreTurned(const QuantizeKernelArgs& args, const Tile& tile,
                                            const Eight& inverse, int token, int column) {
  constexpr int kPitch = kTokens + 4;
  __shared__ __align__(4) uint8_t turned[kCols * kPitch];
  __syncthreads();  // the tile before has been read
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    const uint2 codes = EncodeColumns(tile.x[p], inverse, args.out.e5m2);
#pragma unroll
    for (int j = 0; j < kCodeWidth; ++j) {
      turned[(ColumnOf() + j) * kPitch + TokenOf(p)] = CodeAt(codes, j);
    }
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = token + lane * 4;
  for (int c = static_cast<int>(threadIdx.x) / 32; c < kCols; c += kThreads / 32) {
    if (column + c >= args.size) break;
    const uint32_t word = *reinterpret_cast<const uint32_t*>(turned + c * kPitch + lane * 4);
    uint8_t* const to = args.out.codes + int64_t{column + c} * args.out.codes_stride + i;
    if constexpr (Traits::kAligned) {
      if (i < args.tokens) *reinterpret_cast<uint32_t*>(to) = word;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i + j < args.tokens) to[j] = static_cast<uint8_t>(word >> (8 * j));
      }
    }
  }
}

__device__ __forceinline__ int2 TileOf(int strips) {
  const int row = static_cast<int>(blockIdx.x) / strips;
  return {row * kTokens, (static_cast<int>(blockIdx.x) - row * strips) * kCols};
}

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeTurnedGroups(const __grid_constant__ QuantizeKernelArgs args, int strips) {
  WaitForPriorGrid();
  StartNextGrid();
  const auto [token, column] = TileOf(strips);
  const Tile tile = LoadTile<Traits>(args, token, column);
  Eight amax = {};
  AddMagnitudes(tile, amax);
  float* const scales = args.out.scale + token / kTokens * args.out.scale_stride;
  StoreTurned<Traits>(args, tile, ScaleColumns(args, amax, column, scales), token, column);
}

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeChannels(const __grid_constant__ QuantizeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int column = static_cast<int>(blockIdx.x) * kCols;
  Eight amax = {};
#pragma unroll(Traits::kAligned ? 4 : 1)
  for (int token = 0; token < args.tokens; token += kTokens) {
    AddMagnitudes(LoadTile<Traits>(args, token, column), amax);
  }
  const Eight inverse = ScaleColumns(args, amax, column, args.out.scale);
  for (int token = 0; token < args.tokens; token += kTokens) {
    const Tile tile = LoadTile<Traits>(args, token, column);
    if (args.transposed) {
      StoreTurned<Traits>(args, tile, inverse, token, column);
    } else {
      StoreTile<Traits>(args, tile, inverse, token, column);
    }
  }
}

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeTurnedTensor(const __grid_constant__ QuantizeKernelArgs args, const float* maxima,
                         int count, int strips) {
  WaitForPriorGrid();
  StartNextGrid();
  const auto [token, column] = TileOf(strips);
  const Tile tile = LoadTile<Traits>(args, token, column);
  const float one = InverseOfAll(args.out, maxima, count);
  Eight inverse;
#pragma unroll
  for (int j = 0; j < kCodeWidth; ++j) inverse.v[j] = one;
  StoreTurned<Traits>(args, tile, inverse, token, column);
}

int Strips(const QuantizeKernelArgs& args) { return (args.size + kCols - 1) / kCols; }

// A block a tile; one even of no tokens, for a scale that is to be stored.
LaunchShape Tiles(const QuantizeKernelArgs& args) {
  const int64_t tiles = int64_t{Strips(args)} * ((args.tokens + kTokens - 1) / kTokens);
  return {.grid = dim3(static_cast<unsigned>(tiles < 1 ? 1 : tiles)), .block = dim3(kThreads)};
}

template <typename... Params>
using Kernels = QuantizeKernels<void (*)(QuantizeKernelArgs, Params...)>;

constexpr Kernels<int> kTurnedGroups = {
    QuantizeTurnedGroups<QuantizeF32>, QuantizeTurnedGroups<QuantizeF32Aligned>,
    QuantizeTurnedGroups<QuantizeBf16>, QuantizeTurnedGroups<QuantizeBf16Aligned>};
constexpr Kernels<> kChannels = {
    QuantizeChannels<QuantizeF32>, QuantizeChannels<QuantizeF32Aligned>,
    QuantizeChannels<QuantizeBf16>, QuantizeChannels<QuantizeBf16Aligned>};
constexpr Kernels<const float*, int, int> kTurnedTensor = {
    QuantizeTurnedTensor<QuantizeF32>, QuantizeTurnedTensor<QuantizeF32Aligned>,
    QuantizeTurnedTensor<QuantizeBf16>, QuantizeTurnedTensor<QuantizeBf16Aligned>};

}  // namespace

cudaError_t LaunchQuantizeTurnedGroups(const QuantizeKernelArgs& args, cudaStream_t stream) {
  return Launch(kTurnedGroups.For(args), Tiles(args), stream, args, Strips(args));
}

cudaError_t LaunchQuantizeChannels(const QuantizeKernelArgs& args, cudaStream_t stream) {
  return Launch(kChannels.For(args),
                {.grid = dim3(static_cast<unsigned>(Strips(args))), .block = dim3(kThreads)},
                stream, args);
}

cudaError_t LaunchQuantizeTurnedTensor(const QuantizeKernelArgs& args, const float* maxima,
                                       int count, cudaStream_t stream) {
  return Launch(kTurnedTensor.For(args), Tiles(args), stream, args, maxima, count,
                Strips(args) < 1 ? 1 : Strips(args));
}

}  // namespace millrace
