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

// What 1 in a head's cache stands for.
__device__ __forceinline__ float ScaleOf(const float* scales, int kv_head) {
  return scales == nullptr ? 1 : __ldg(scales + kv_head);
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

constexpr int kMaxParts = 128;

// Adds `by` and returns what was there. What this block wrote before a barrier ahead of this is
// seen by who counts later; what earlier ones wrote is seen after a barrier behind it.
__device__ __forceinline__ int32_t CountArrival(int32_t* count, int32_t by = 1) {
  int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(count), "r"(by)
               : "memory");
  return before;
}

// Called by every thread of the block once its part is written. True in the block that came last,
// which sees the parts of all.
__device__ __forceinline__ bool IsLastPart(const PagedAttentionKernelArgs& args,
                                           const PagedAttentionWork& work, int head) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* arrivals = args.arrivals + static_cast<int64_t>(work.slot) * args.kv_heads + head;
    last = CountArrival(arrivals) == work.parts - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  return last;
}

// Writes the tile's output from its parts, taken in order. A warp takes a row: its lanes first
// weigh a part each, then sum four elements each.
__device__ __forceinline__ void JoinParts(const PagedAttentionKernelArgs& args,
                                          const PagedAttentionWork& work, int head) {
  const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
  const PartialTile first = PartOf(args, work, head, 0);
  // From a part to the next, in floats.
  const int64_t step = static_cast<int64_t>(args.kv_heads) * args.tile_rows * (args.head_dim + 2);
  for (int r = threadIdx.x / 32; r < work.queries * args.group; r += warps) {
    const float* stats = reinterpret_cast<const float*>(first.stats + r);
    float2 part[kMaxParts / 32];
    float top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kMaxParts / 32; ++i) {
      const int p = lane + 32 * i;
      part[i] = {-INFINITY, 0};
      if (p < work.parts) part[i] = __ldcg(reinterpret_cast<const float2*>(stats + p * step));
      top = fmaxf(top, part[i].x);
    }
#pragma unroll
    for (int x = 16; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, x));
    const float base = top == -INFINITY ? 0 : top;
    float total = 0;
#pragma unroll
    for (int i = 0; i < kMaxParts / 32; ++i) {
      part[i].x = Exp2(part[i].x - base);
      total += part[i].x * part[i].y;
    }
#pragma unroll
    for (int x = 16; x > 0; x /= 2) total += __shfl_xor_sync(~0u, total, x);
    for (int d0 = 0; d0 < args.head_dim; d0 += 128) {
      const int d = min(d0 + 4 * lane, args.head_dim - 4);
      const float* sums = first.sums + static_cast<int64_t>(r) * args.head_dim + d;
      float4 sum = {};
#pragma unroll
      for (int i = 0; i < kMaxParts / 32; ++i) {
        const int end = min(32, work.parts - 32 * i);
#pragma unroll 16
        for (int p = 0; p < end; ++p) {
          AddScaled(__ldcg(reinterpret_cast<const float4*>(sums + (32 * i + p) * step)),
                    __shfl_sync(~0u, part[i].x, p), sum);
        }
      }
      if (d0 + 4 * lane < args.head_dim) {
        StoreScaled(sum, ScaleOf(args.v_scale, head) / total, OutRow(args, work, head, r) + d);
      }
    }
  }
}

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_JOIN_CUH_
