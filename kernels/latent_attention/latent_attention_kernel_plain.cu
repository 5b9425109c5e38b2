// All dtypes and shapes, in f32. Grid: (tokens, groups of 8 heads). A block's warps widen a tile of
// the token's rows into shared memory; then each warp is one head: a lane scores a key, the softmax
// goes on by shuffles, and the lanes take the channels of the sum. Bound by shared memory: a row is
// read twice a head.
#include <algorithm>

#include "kernels/latent_attention/latent_attention_kernel.h"
#include "kernels/latent_attention/latent_attention_kernel_keys.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kHeads = kLatentWarps;
// Floats behind each row: 16-byte words of eight rows then lie in different banks.
constexpr int kRowPadding = 4;

// Shared memory: keys, queries and sums of the heads, then the tile.
constexpr int64_t SharedBytes(int64_t dim, int64_t keys) {
  constexpr int64_t kRing = sizeof(LatentKeyRing), kFloat = sizeof(float);
  return kRing + (2 * kHeads * dim + keys * (dim + kRowPadding)) * kFloat;
}

template <LatentRowType kType>
__device__ __forceinline__ float ReadChannel(const LatentKey& key, int d) {
  if constexpr (kType == LatentRowType::kF32) {
    return reinterpret_cast<const float*>(key.row)[d];
  } else if constexpr (kType == LatentRowType::kBf16) {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(key.row)[d]);
  } else {
    if (d >= kDeviceLatentCodes) {
      // Rows may begin on any byte.
      const uint8_t* const at = key.row + 2 * d - kDeviceLatentCodes;
      return __uint_as_float(static_cast<uint32_t>(at[0]) << 16 | static_cast<uint32_t>(at[1])
                                                                      << 24);
    }
    return WidenE4M3(key.row[d], LatentFactor(key.row[key.scales + d / kDeviceLatentGroup]));
  }
}

struct Softmax {
  float maximum;
  float sum;
};

// One head and the tile's `keys` rows.
__device__ __forceinline__ void AttendTile(const float* q, const float* rows, int keys, int dim,
                                           Softmax* state, float* acc) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int stride = dim + kRowPadding;
  float score = -INFINITY;
  if (lane < keys) {
    float4 sums = {0, 0, 0, 0};
    for (int d = 0; d < dim; d += 4) {
      const float4 a = *reinterpret_cast<const float4*>(q + d);
      const float4 b = *reinterpret_cast<const float4*>(rows + lane * stride + d);
      sums.x = fmaf(a.x, b.x, sums.x);
      sums.y = fmaf(a.y, b.y, sums.y);
      sums.z = fmaf(a.z, b.z, sums.z);
      sums.w = fmaf(a.w, b.w, sums.w);
    }
    score = (sums.x + sums.y) + (sums.z + sums.w);
  }
  float maximum = fmaxf(state->maximum, score);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));
  }
  const float weight = lane < keys ? expf(score - maximum) : 0.0f;
  const float rescale = expf(state->maximum - maximum);
  float sum = weight;
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  *state = {maximum, fmaf(state->sum, rescale, sum)};
  for (int begin = 0; begin < dim; begin += 32) {
    const int d = begin + lane;
    float mixed = d < dim ? acc[d] * rescale : 0.0f;
    for (int j = 0; j < keys; ++j) {
      const float w = __shfl_sync(0xffffffffu, weight, j);
      if (d < dim) mixed = fmaf(w, rows[j * stride + d], mixed);
    }
    if (d < dim) acc[d] = mixed;
  }
}

template <typename T, LatentRowType kType>
__global__ void __launch_bounds__(kLatentThreads, 2)
    AttendPlain(const __grid_constant__ LatentAttentionKernelArgs args, int tile_keys) {
  extern __shared__ __align__(16) uint8_t memory[];
  LatentKeyRing& ring = *reinterpret_cast<LatentKeyRing*>(memory);
  float* const shared = reinterpret_cast<float*>(memory + sizeof(LatentKeyRing));
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  LatentKeyStream<kType> keys(args, token, ring);
  if (!keys.has_token()) return;

  const int head = static_cast<int>(blockIdx.y) * kHeads + warp;
  const bool is_head = head < args.heads;
  float* const q = shared + warp * args.dim;
  float* const acc = shared + (kHeads + warp) * args.dim;
  float* const rows = shared + 2 * kHeads * args.dim;
  Softmax state = {is_head ? args.sinks[head] : 0.0f, 1};
  const T* const from =
      static_cast<const T*>(args.q.data) + token * args.q.token_stride + head * args.q.head_stride;
  for (int d = lane; d < args.dim; d += 32) {
    q[d] = is_head ? static_cast<float>(from[d]) * args.scale : 0.0f;
    acc[d] = 0;
  }
  for (int count = keys.Next(tile_keys); count > 0; count = keys.Next(tile_keys)) {
    for (int j = warp; j < count; j += kLatentWarps) {
      const LatentKey key = keys.key(j);
      for (int d = lane; d < args.dim; d += 32) {
        rows[j * (args.dim + kRowPadding) + d] = ReadChannel<kType>(key, d);
      }
    }
    __syncthreads();
    if (is_head) AttendTile(q, rows, count, args.dim, &state, acc);
    __syncthreads();
  }
  if (!is_head) return;
  T* const out =
      static_cast<T*>(args.out.data) + token * args.out.token_stride + head * args.out.head_stride;
  for (int d = lane; d < args.dim; d += 32) out[d] = T(acc[d] / state.sum);
}

using Kernel = void (*)(LatentAttentionKernelArgs, int);

// [q is bf16][type of the rows]
constexpr Kernel kKernels[2][3] = {
    {AttendPlain<float, LatentRowType::kF32>, AttendPlain<float, LatentRowType::kBf16>,
     AttendPlain<float, LatentRowType::kFp8>},
    {AttendPlain<__nv_bfloat16, LatentRowType::kF32>,
     AttendPlain<__nv_bfloat16, LatentRowType::kBf16>,
     AttendPlain<__nv_bfloat16, LatentRowType::kFp8>},
};

}  // namespace

cudaError_t LaunchLatentAttentionPlain(const LatentAttentionKernelArgs& args, cudaStream_t stream) {
  int device = 0, room = 0;
  if (const cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return e;
  if (const cudaError_t e =
          cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      e != cudaSuccess) {
    return e;
  }
  int tile_keys = 32;  // a lane each
  while (tile_keys > 0 && SharedBytes(args.dim, tile_keys) > room) tile_keys /= 2;
  if (tile_keys == 0) return cudaErrorNotSupported;
  const int groups = (args.heads + kHeads - 1) / kHeads;
  return Launch(kKernels[args.is_bf16 ? 1 : 0][static_cast<int>(args.window_rows.type)],
                {.grid = dim3(static_cast<unsigned>(args.tokens), static_cast<unsigned>(groups)),
                 .block = dim3(kLatentThreads),
                 .shared_bytes = static_cast<size_t>(SharedBytes(args.dim, tile_keys))},
                stream, args, tile_keys);
}

}  // namespace millrace
