// 512 channels, bf16 queries, bf16 or FP8 rows, on tensor cores. Grid: (tokens, groups of 16 kTiles
// heads); few tokens take small groups, for more blocks. A block's warps bring a tile of 64 rows
// into shared memory as bf16, which holds every code times its scale exactly. Scores: a warp has 16
// heads and a share of the keys; they meet in shared memory, where eight lanes a head turn them
// into weights, rounded to bf16. Sums: a warp has all heads of the block and 64 channels, in
// registers. Every number comes of the same instructions whatever kTiles is. Bound by shared
// memory: at 64 heads a tile's products read 512 KiB.
#include <algorithm>

#include "kernels/latent_attention/latent_attention_kernel.h"
#include "kernels/latent_attention/latent_attention_kernel_keys.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kDim = 512;
constexpr int kTileKeys = 64;
constexpr int kWarpChannels = kDim / kLatentWarps;
static_assert(kWarpChannels == kDeviceLatentGroup);
// Behind each row: eight rows' 16-byte words then lie in different banks.
constexpr int kRow = kDim + 8;
constexpr int kWeightRow = kTileKeys + 8;
constexpr int kScoreRow = kTileKeys + 4;

template <int kTiles>
struct Shared {
  static constexpr int kHeads = 16 * kTiles;
  alignas(16) Bf16 q[kHeads][kRow];
  alignas(16) Bf16 rows[kTileKeys][kRow];
  alignas(16) Bf16 weights[kHeads][kWeightRow];
  float scores[kHeads][kScoreRow];
  float maximum[kHeads];
  float sum[kHeads];
  float rescale[kHeads];  // what the tile's new maximum does to the sums before it
  LatentKeyRing ring;
};

struct Thread {
  int warp = static_cast<int>(threadIdx.x / 32);
  int lane = static_cast<int>(threadIdx.x % 32);
};

// The block's queries, zeros for heads past the last, and a softmax that has seen the sink.
template <int kTiles>
__device__ __forceinline__ void Start(const LatentAttentionKernelArgs& args, int first_head,
                                      Shared<kTiles>& s) {
  constexpr int kWords = kDim / 8;
  const Bf16* const q = static_cast<const Bf16*>(args.q.data) +
                        static_cast<int>(blockIdx.x) * args.q.token_stride +
                        first_head * args.q.head_stride;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < 16 * kTiles * kWords; i += kLatentThreads) {
    const int n = i / kWords, d = i % kWords * 8;
    uint4 word = {};
    if (first_head + n < args.heads) {
      word = *reinterpret_cast<const uint4*>(q + n * args.q.head_stride + d);
    }
    *reinterpret_cast<uint4*>(&s.q[n][d]) = word;
  }
  const int n = static_cast<int>(threadIdx.x);
  if (n < 16 * kTiles) {
    s.maximum[n] = first_head + n < args.heads ? args.sinks[first_head + n] : 0.0f;
    s.sum[n] = 1;
  }
}

// Eight codes as bf16.
__device__ __forceinline__ uint4 WidenCodes(uint2 codes, float factor) {
  const auto pair = [&](uint32_t two) {
    return PackBf16(WidenE4M3(two, factor), WidenE4M3(two >> 8, factor));
  };
  return {pair(codes.x), pair(codes.x >> 16), pair(codes.y), pair(codes.y >> 16)};
}

// A lane's part of a row on its way to shared memory. Absent rows become zeros, for a weight of
// zero does not silence a NaN.
template <LatentRowType kType>
struct RowPart;

template <>
struct RowPart<LatentRowType::kBf16> {
  uint4 words[2];

  __device__ __forceinline__ void Load(const LatentKey& key, int lane) {
    const uint4* const from = reinterpret_cast<const uint4*>(key.row);
    words[0] = from[lane];
    words[1] = from[lane + 32];
  }

  __device__ __forceinline__ void Store(bool present, int lane, Bf16* to) const {
    uint4* const words_to = reinterpret_cast<uint4*>(to);
    words_to[lane] = present ? words[0] : uint4{};
    words_to[lane + 32] = present ? words[1] : uint4{};
  }
};

// 56 words of eight codes, 16 of four bf16.
template <>
struct RowPart<LatentRowType::kFp8> {
  static constexpr int kCodeWords = kDeviceLatentCodes / 8, kWords = kDeviceLatentDataBytes / 8;
  uint64_t scales;
  uint2 words[3];

  __device__ __forceinline__ void Load(const LatentKey& key, int lane) {
    scales = *reinterpret_cast<const uint64_t*>(key.row + key.scales);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int w = min(lane + 32 * i, kWords - 1);
      words[i] = *reinterpret_cast<const uint2*>(key.row + 8 * w);
    }
  }

  __device__ __forceinline__ void Store(bool present, int lane, Bf16* to) const {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int w = lane + 32 * i;
      const uint2 word = present ? words[i] : uint2{};
      if (w < kCodeWords) {
        const uint32_t scale = static_cast<uint32_t>(scales >> (w / 8 * 8)) & 0xff;
        const float factor = present ? LatentFactor(scale) : 0.0f;
        *reinterpret_cast<uint4*>(to + 8 * w) = WidenCodes(word, factor);
      } else if (w < kWords) {
        *reinterpret_cast<uint2*>(to + kDeviceLatentCodes + 4 * (w - kCodeWords)) = word;
      }
    }
  }
};

// The tile: `count` rows, at least one, and zeros behind them. A warp has four rows in flight; in
// place of an absent one it asks for the first again, so that no load waits for a condition.
template <LatentRowType kType, int kTiles>
__device__ __forceinline__ void LoadTile(const LatentKeyStream<kType>& keys, int count,
                                         Thread thread, Shared<kTiles>& s) {
  constexpr int kInFlight = 4;
#pragma unroll 1
  for (int begin = thread.warp; begin < kTileKeys; begin += kInFlight * kLatentWarps) {
    RowPart<kType> parts[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int j = begin + i * kLatentWarps;
      parts[i].Load(keys.key(j < count ? j : 0), thread.lane);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int j = begin + i * kLatentWarps;
      parts[i].Store(j < count, thread.lane, s.rows[j]);
    }
  }
}

// Warp: 16 heads, 8 kTiles keys.
template <int kTiles>
__device__ __forceinline__ void Score(float scale, int count, Thread thread, Shared<kTiles>& s) {
  const int head = thread.warp % kTiles * 16, first = thread.warp / kTiles * 8 * kTiles;
  const Bf16* const q = &s.q[head + thread.lane % 16][thread.lane / 16 * 8];
  const Bf16* const row = &s.rows[first + thread.lane % 8][thread.lane / 8 * 8];
  float scores[kTiles][4] = {};
#pragma unroll 4
  for (int d = 0; d < kDim; d += 32) {
    uint32_t a[2][4];
    LoadMatrices(q + d, a[0]);
    LoadMatrices(q + d + 16, a[1]);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      uint32_t b[4];
      LoadMatrices(row + n * 8 * kRow + d, b);
      MmaBf16(scores[n], a[0][0], a[0][1], a[0][2], a[0][3], b[0], b[1]);
      MmaBf16(scores[n], a[1][0], a[1][1], a[1][2], a[1][3], b[2], b[3]);
    }
  }
  const int r = head + thread.lane / 4;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int j = first + 8 * n + thread.lane % 4 * 2;
    s.scores[r][j] = j < count ? scores[n][0] * scale : -INFINITY;
    s.scores[r][j + 1] = j + 1 < count ? scores[n][1] * scale : -INFINITY;
    s.scores[r + 8][j] = j < count ? scores[n][2] * scale : -INFINITY;
    s.scores[r + 8][j + 1] = j + 1 < count ? scores[n][3] * scale : -INFINITY;
  }
}

// Eight lanes a head.
template <int kTiles>
__device__ __forceinline__ void Weigh(Shared<kTiles>& s) {
  constexpr int kLanes = 8, kEach = kTileKeys / kLanes;
  const int part = static_cast<int>(threadIdx.x) % kLanes;
  for (int n = static_cast<int>(threadIdx.x) / kLanes; n < 16 * kTiles;
       n += kLatentThreads / kLanes) {
    const float before = s.maximum[n];
    float x[kEach];
    float maximum = before;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = s.scores[n][part + i * kLanes];
      maximum = fmaxf(maximum, x[i]);
    }
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float weight = __expf(x[i] - maximum);
      s.weights[n][part + i * kLanes] = __float2bfloat16_rn(weight);
      sum += weight;
    }
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    __syncwarp();  // all eight have read the maximum
    if (part == 0) {
      const float rescale = __expf(before - maximum);
      s.rescale[n] = rescale;
      s.sum[n] = fmaf(s.sum[n], rescale, sum);
      s.maximum[n] = maximum;
    }
  }
}

template <int kTiles>
using Sums = float[kTiles][kWarpChannels / 8][4];

// Warp: all heads, 64 channels.
template <int kTiles>
__device__ __forceinline__ void Mix(Thread thread, const Shared<kTiles>& s, Sums<kTiles>& acc) {
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    const float low = s.rescale[16 * m + thread.lane / 4];
    const float high = s.rescale[16 * m + thread.lane / 4 + 8];
#pragma unroll
    for (int n = 0; n < kWarpChannels / 8; ++n) {
      acc[m][n][0] *= low;
      acc[m][n][1] *= low;
      acc[m][n][2] *= high;
      acc[m][n][3] *= high;
    }
  }
  const Bf16* const weight = &s.weights[thread.lane % 16][thread.lane / 16 * 8];
  const Bf16* const row =
      &s.rows[thread.lane % 16][thread.warp * kWarpChannels + thread.lane / 16 * 8];
#pragma unroll
  for (int j = 0; j < kTileKeys; j += 16) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) LoadMatrices(weight + 16 * m * kWeightRow + j, a[m]);
#pragma unroll
    for (int n = 0; n < kWarpChannels / 8; n += 2) {
      uint32_t b[4];
      LoadMatricesTransposed(row + j * kRow + 8 * n, b);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        MmaBf16(acc[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
        MmaBf16(acc[m][n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
      }
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void Store(const LatentAttentionKernelArgs& args, int first_head,
                                      const Shared<kTiles>& s, const Sums<kTiles>& acc) {
  const Thread thread;
  Bf16* const out = static_cast<Bf16*>(args.out.data) +
                    static_cast<int>(blockIdx.x) * args.out.token_stride +
                    thread.warp * kWarpChannels + thread.lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int n = 16 * m + 8 * half + thread.lane / 4;
      if (first_head + n >= args.heads) continue;
      const float inverse = 1 / s.sum[n];
      Bf16* const to = out + (first_head + n) * args.out.head_stride;
#pragma unroll
      for (int c = 0; c < kWarpChannels / 8; ++c) {
        *reinterpret_cast<uint32_t*>(to + 8 * c) =
            PackBf16(acc[m][c][2 * half] * inverse, acc[m][c][2 * half + 1] * inverse);
      }
    }
  }
}

template <LatentRowType kType, int kTiles>
__global__ void __launch_bounds__(kLatentThreads, kTiles == 1 ? 2 : 1)
    AttendTensor(const __grid_constant__ LatentAttentionKernelArgs args) {
  extern __shared__ __align__(16) uint8_t shared[];
  Shared<kTiles>& s = *reinterpret_cast<Shared<kTiles>*>(shared);
  WaitForPriorGrid();
  StartNextGrid();
  const Thread thread;
  LatentKeyStream<kType> keys(args, static_cast<int>(blockIdx.x), s.ring);
  if (!keys.has_token()) return;
  const int first_head = static_cast<int>(blockIdx.y) * 16 * kTiles;
  Start(args, first_head, s);
  Sums<kTiles> acc = {};
  for (int count = keys.Next(kTileKeys); count > 0; count = keys.Next(kTileKeys)) {
    LoadTile(keys, count, thread, s);
    __syncthreads();
    Score(args.scale, count, thread, s);
    __syncthreads();
    Weigh(s);
    __syncthreads();
    Mix(thread, s, acc);
    __syncthreads();
  }
  Store(args, first_head, s, acc);
}

template <int kTiles>
cudaError_t LaunchTiles(const LatentAttentionKernelArgs& args, cudaStream_t stream) {
  const int groups = (args.heads + 16 * kTiles - 1) / (16 * kTiles);
  return Launch(args.window_rows.type == LatentRowType::kFp8
                    ? AttendTensor<LatentRowType::kFp8, kTiles>
                    : AttendTensor<LatentRowType::kBf16, kTiles>,
                {.grid = dim3(static_cast<unsigned>(args.tokens), static_cast<unsigned>(groups)),
                 .block = dim3(kLatentThreads),
                 .shared_bytes = sizeof(Shared<kTiles>)},
                stream, args);
}

}  // namespace

cudaError_t LaunchLatentAttentionTensor(const LatentAttentionKernelArgs& args,
                                        cudaStream_t stream) {
  int device = 0, room = 0, processors = 0;
  if (const cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return e;
  if (const cudaError_t e =
          cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      e != cudaSuccess) {
    return e;
  }
  if (const cudaError_t e =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
      e != cudaSuccess) {
    return e;
  }
  // The largest group of heads that leaves no multiprocessor without a block, or is not needed.
  const auto takes = [&](int tiles, size_t bytes) {
    const int64_t blocks = int64_t{args.tokens} * ((args.heads + 16 * tiles - 1) / (16 * tiles));
    return args.heads > 8 * tiles && blocks >= processors && bytes <= static_cast<size_t>(room);
  };
  if (takes(4, sizeof(Shared<4>))) return LaunchTiles<4>(args, stream);
  if (takes(2, sizeof(Shared<2>))) return LaunchTiles<2>(args, stream);
  if (sizeof(Shared<1>) > static_cast<size_t>(room)) return cudaErrorNotSupported;
  return LaunchTiles<1>(args, stream);
}

}  // namespace millrace
