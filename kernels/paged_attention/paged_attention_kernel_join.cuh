// What the kernels share: where a page lies, the arithmetic of the softmax, the join of the parts
// of a tile.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_JOIN_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_JOIN_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/paged_attention/paged_attention_kernel.h"
#include "kernels/ptx/mma.cuh"

namespace millrace {

constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x / n for 0 <= x < 2^24 and n <= 256 without a division on the device: n's reciprocal in units
// of 2^-32, rounded up.
struct Divisor {
  uint64_t reciprocal;
  int32_t n;
  __host__ __device__ explicit Divisor(int32_t by)
      : reciprocal(((uint64_t{1} << 32) + static_cast<uint64_t>(by) - 1) /
                   static_cast<uint64_t>(by)),
        n(by) {}
  __device__ __forceinline__ int32_t Divide(int32_t x) const {
    return static_cast<int32_t>((static_cast<uint64_t>(x) * reciprocal) >> 32);
  }
};

__device__ __forceinline__ PagedAttentionWork LoadWork(const PagedAttentionWork* from) {
  PagedAttentionWork work;
  const auto* in = reinterpret_cast<const uint4*>(from);
  auto* out = reinterpret_cast<uint4*>(&work);
  out[0] = __ldg(in);
  out[1] = __ldg(in + 1);
  return work;
}

// Row r of a tile: query r / group, query head r % group of the kv head.
__device__ __forceinline__ __nv_bfloat16* OutRow(const PagedAttentionKernelArgs& args,
                                                 const PagedAttentionWork& work, int head, int r) {
  return static_cast<__nv_bfloat16*>(args.out) + (work.token + r / args.group) * args.out_token +
         (head * args.group + r % args.group) * args.out_head;
}

__device__ __forceinline__ void StoreScaled(float4 x, float scale, __nv_bfloat16* to) {
  *reinterpret_cast<uint2*>(to) = {PackBf16(x.x * scale, x.y * scale),
                                   PackBf16(x.z * scale, x.w * scale)};
}

__device__ __forceinline__ void AddScaled(float4 x, float scale, float4& sum) {
  sum.x += x.x * scale;
  sum.y += x.y * scale;
  sum.z += x.z * scale;
  sum.w += x.w * scale;
}

// The partial result of part `part` of a tile.
struct PartialTile {
  float* sums;    // [tile_rows][head_dim]
  float2* stats;  // [tile_rows]
};

__device__ __forceinline__ PartialTile PartOf(const PagedAttentionKernelArgs& args,
                                              const PagedAttentionWork& work, int head, int part) {
  const int64_t index = static_cast<int64_t>(work.slot + part) * args.kv_heads + head;
  float* sums = args.partials + index * args.tile_rows * (args.head_dim + 2);
  return {sums, reinterpret_cast<float2*>(sums + args.tile_rows * args.head_dim)};
}

// Called by every thread of the block once its part is written. True in the block that came last,
// which sees the parts of all.
__device__ __forceinline__ bool IsLastPart(const PagedAttentionKernelArgs& args,
                                           const PagedAttentionWork& work, int head) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* arrivals = args.arrivals + static_cast<int64_t>(work.slot) * args.kv_heads + head;
    last = atomicAdd(arrivals, 1) == work.parts - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

// Writes the tile's output from its parts, taken in order.
__device__ __forceinline__ void JoinParts(const PagedAttentionKernelArgs& args,
                                          const PagedAttentionWork& work, int head) {
  const int columns = args.head_dim / 4, rows = work.queries * args.group;
  const PartialTile first = PartOf(args, work, head, 0);
  // From a part to the next, in floats.
  const int64_t step = static_cast<int64_t>(args.kv_heads) * args.tile_rows * (args.head_dim + 2);
  for (int e = threadIdx.x; e < rows * columns; e += blockDim.x) {
    const int r = e / columns, d = e % columns * 4;
    const float* stats = reinterpret_cast<const float*>(first.stats + r);
    float top = -INFINITY;
#pragma unroll 4
    for (int p = 0; p < work.parts; ++p) top = fmaxf(top, __ldcg(stats + p * step));
    if (top == -INFINITY) top = 0;
    const float* sums = first.sums + static_cast<int64_t>(r) * args.head_dim + d;
    float total = 0;
    float4 acc = {};
#pragma unroll 4
    for (int p = 0; p < work.parts; ++p) {
      const float2 part = __ldcg(reinterpret_cast<const float2*>(stats + p * step));
      const float weight = Exp2(part.x - top);
      total += weight * part.y;
      AddScaled(__ldcg(reinterpret_cast<const float4*>(sums + p * step)), weight, acc);
    }
    StoreScaled(acc, 1 / total, OutRow(args, work, head, r) + d);
  }
}

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_JOIN_CUH_
