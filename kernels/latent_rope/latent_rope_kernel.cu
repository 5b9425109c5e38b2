// Grid: blocks of one token, of some of its heads each. A block makes the token's sines and cosines
// before it waits for the kernel ahead. Then a team of lanes has a head: RotateVectors keeps it in
// registers between the sum of its squares and the store, and without a norm leaves the channels
// that are not rotated alone. Bound by memory.
#include <algorithm>

#include "kernels/latent_rope/latent_rope_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/rope/rotation.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;  // at most
constexpr int kMaxPairs = 512;
constexpr int kWidth = 8;                               // elements of a vector
constexpr int kKept = kLatentRopeKept / (32 * kWidth);  // vectors of a lane
// From here on a block has several heads a team, one after the other.
constexpr int kManyTokens = 512;
constexpr int kHeadsOfTeam = 8;

// How the heads of a token are divided.
struct Teams {
  int lanes;        // of a team: a power of two, at most a warp
  int block_heads;  // of a block
};

// Sines (negative for the way back) and cosines of the block's token; a barrier, and the wait for
// the kernel ahead.
__device__ __forceinline__ void MakeTable(const LatentRopeKernelArgs& args, float2* table) {
  const int32_t position = args.positions[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < args.pairs; i += static_cast<int>(blockDim.x)) {
    float sin, cos;
    RotationOf(position, args.inv_freq[i], &sin, &cos);
    table[i] = make_float2(args.inverse ? -sin : sin, cos);
  }
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();
}

__device__ __forceinline__ void Turn(const float2& rotation, float& a, float& b) {
  const float x = a, y = b;
  a = x * rotation.y - y * rotation.x;
  b = y * rotation.y + x * rotation.x;
}

// From each lane's part of the sum of squares.
__device__ __forceinline__ float NormFactor(const LatentRopeKernelArgs& args, float sum,
                                            int lanes) {
  for (int d = lanes / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  return rsqrtf(sum / static_cast<float>(args.dim) + args.norm_eps);
}

template <bool kNorm>
__global__ void __launch_bounds__(kThreads)
    RotateVectors(const __grid_constant__ LatentRopeKernelArgs args, const Teams teams) {
  __shared__ float2 table[kMaxPairs];
  MakeTable(args, table);
  const int plain = args.dim - 2 * args.pairs;
  const int first = (kNorm ? 0 : plain) + static_cast<int>(threadIdx.x) % teams.lanes * kWidth;
  const int begin = static_cast<int>(blockIdx.y) * teams.block_heads;
  const int end = min(begin + teams.block_heads, args.heads);
  __nv_bfloat16* const x =
      static_cast<__nv_bfloat16*>(args.x) + blockIdx.x * args.token_stride + first;
  // Whole warps go on, for they add up together.
  for (int h = begin; h < end; h += static_cast<int>(blockDim.x) / teams.lanes) {
    const int head = h + static_cast<int>(threadIdx.x) / teams.lanes;
    const int size = head < end ? args.dim : 0;
    Vec<__nv_bfloat16, kWidth> kept[kKept];
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKept; ++n) {
      const int i = n * teams.lanes * kWidth;
      if (first + i < size) kept[n] = LoadVec<kWidth>(x + head * args.head_stride + i);
    }
    float factor = 1;
    if constexpr (kNorm) {
#pragma unroll
      for (int n = 0; n < kKept; ++n) {
        if (first + n * teams.lanes * kWidth >= size) break;
        const Floats<kWidth> v = Widened(kept[n]);
#pragma unroll
        for (int e = 0; e < kWidth; ++e) sum = fmaf(v.v[e], v.v[e], sum);
      }
      factor = NormFactor(args, sum, teams.lanes);
    }
#pragma unroll
    for (int n = 0; n < kKept; ++n) {
      const int i = n * teams.lanes * kWidth;
      if (first + i >= size) break;
      Floats<kWidth> v = Widened(kept[n]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) v.v[e] *= factor;
      if (first + i >= plain) {
        const float2* rotation = table + (first + i - plain) / 2;
#pragma unroll
        for (int e = 0; e < kWidth; e += 2) Turn(rotation[e / 2], v.v[e], v.v[e + 1]);
      }
      StoreVec(x + head * args.head_stride + i, Narrowed<__nv_bfloat16>(v));
    }
  }
}

// Any size and alignment: a warp a head, read twice where it is normalised.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RotateAny(const __grid_constant__ LatentRopeKernelArgs args, const Teams teams) {
  __shared__ float2 table[kMaxPairs];
  MakeTable(args, table);
  const int plain = args.dim - 2 * args.pairs;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int begin = static_cast<int>(blockIdx.y) * teams.block_heads;
  const int end = min(begin + teams.block_heads, args.heads);
  const auto value = [](const T* from) { return Widened(LoadVec<1>(from)).v[0]; };
  const auto store = [](T* to, float v) { StoreVec(to, Narrowed<T>(Floats<1>{{v}})); };
  for (int head = begin + static_cast<int>(threadIdx.x) / 32; head < end;
       head += static_cast<int>(blockDim.x) / 32) {
    T* x = static_cast<T*>(args.x) + blockIdx.x * args.token_stride + head * args.head_stride;
    float factor = 1;
    if (args.norm) {
      float sum = 0;
      for (int i = lane; i < args.dim; i += 32) sum = fmaf(value(x + i), value(x + i), sum);
      factor = NormFactor(args, sum, 32);
      for (int i = lane; i < plain; i += 32) store(x + i, value(x + i) * factor);
    }
    for (int i = lane; i < args.pairs; i += 32) {
      T* pair = x + plain + 2 * i;
      float a = value(pair) * factor, b = value(pair + 1) * factor;
      Turn(table[i], a, b);
      store(pair, a);
      store(pair + 1, b);
    }
  }
}

}  // namespace

cudaError_t LaunchLatentRope(LatentRopeVariant variant, const LatentRopeKernelArgs& args,
                             cudaStream_t stream) {
  int lanes = 32;
  auto kernel = variant == LatentRopeVariant::kF32 ? RotateAny<float> : RotateAny<__nv_bfloat16>;
  if (variant == LatentRopeVariant::kBf16Vector) {
    kernel = args.norm ? RotateVectors<true> : RotateVectors<false>;
    const int vectors = (args.norm ? args.dim : 2 * args.pairs) / kWidth;
    while (lanes > 1 && lanes / 2 >= vectors) lanes /= 2;
  }
  const int threads = std::min(kThreads, (args.heads * lanes + 31) / 32 * 32);
  const int rounds = args.tokens >= kManyTokens ? kHeadsOfTeam : 1;
  const Teams teams = {.lanes = lanes, .block_heads = threads / lanes * rounds};
  const auto blocks =
      static_cast<unsigned>((args.heads + teams.block_heads - 1) / teams.block_heads);
  return Launch(kernel,
                {.grid = dim3(static_cast<unsigned>(args.tokens), blocks),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args, teams);
}

}  // namespace millrace
