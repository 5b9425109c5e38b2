// The softmax of prefill for Hopper, on a warpgroup's scores as wgmma leaves them: s[i] belongs to
// the thread's row i / 2 % 2, at column i / 4 * 8 + i % 2 from the thread's first.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_SOFTMAX_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_SOFTMAX_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/ptx/exp2.cuh"
#include "kernels/ptx/mma.cuh"

namespace millrace::prefill {

// Scores of keys that a row does not see become -inf. limit[r]: the last key that row r sees,
// counted from the block's first key.
template <int kKeys>
__device__ __forceinline__ void Mask(float (&s)[kKeys / 2], const int (&limit)[2]) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    if (i / 4 * 8 + i % 2 > limit[i / 2 % 2] - column) s[i] = -INFINITY;
  }
}

// The largest of a thread's values of row r. Four chains, so that the comparisons need not wait for
// one another.
template <int kKeys>
__device__ __forceinline__ float RowMax(const float (&s)[kKeys / 2], int r) {
  float top[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) top[i % 4] = fmaxf(top[i % 4], s[i / 2 * 4 + r * 2 + i % 2]);
  float all = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
  all = fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 1));
  return fmaxf(all, __shfl_xor_sync(0xffffffffu, all, 2));
}

// How far a row's ceiling is set above its largest score, as a power of two.
inline constexpr float kSlack = 8;

// The first ceilings, and those raised by masked blocks: returns whether any was. `base` is what to
// subtract.
template <int kKeys>
__device__ __forceinline__ bool RaiseByMaximum(const float (&s)[kKeys / 2], float (&ceiling)[2],
                                               float scale_log2, float (&factor)[2],
                                               float (&base)[2]) {
  bool raised = false;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float top = RowMax<kKeys>(s, r) * scale_log2;
    if (top > ceiling[r]) {
      base[r] = top + kSlack;
      factor[r] = Exp2(ceiling[r] - base[r]);
      ceiling[r] = base[r];
      raised = true;
    }
    // A row that has seen no key yet has no ceiling to subtract.
    if (base[r] == -INFINITY) base[r] = 0;
  }
  return raised;
}

// As Exponents(), but none above kHeadroom. Bits of floats compare like integers from 0 on.
template <bool kMasked, int kHeadroom, int kKeys>
__device__ __forceinline__ bool ExponentsWithHeadroom(float (&s)[kKeys / 2], float (&ceiling)[2],
                                                      float scale_log2, float (&factor)[2]) {
  factor[0] = factor[1] = 1;
  float base[2] = {ceiling[0], ceiling[1]};
  bool raised = false;
  if (kMasked) raised = RaiseByMaximum<kKeys>(s, ceiling, scale_log2, factor, base);
  int highest = 0;
#pragma unroll
  for (int i = 0; i < kKeys / 2; i += 2) {
    s[i] = fmaf(s[i], scale_log2, kHeadroom - base[i / 2 % 2]);
    s[i + 1] = fmaf(s[i + 1], scale_log2, kHeadroom - base[i / 2 % 2]);
    highest = __vimax3_s32(highest, __float_as_int(s[i]), __float_as_int(s[i + 1]));
  }
  if (!kMasked && __any_sync(0xffffffffu, highest > __float_as_int(1.0f * kHeadroom))) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float over = RowMax<kKeys>(s, r) - kHeadroom;
      const float raise = over > 0 ? over + kSlack : 0;
      factor[r] = Exp2(-raise);
      ceiling[r] += raise;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) s[i / 2 * 4 + r * 2 + i % 2] -= raise;
    }
    raised = true;
  }
  return kMasked ? __any_sync(0xffffffffu, raised) : raised;
}

// Scores become the exponents of the weights, s * scale_log2 - ceiling, none above 0. Where a row's
// scores pass its ceiling it is raised, and factor[r] is what the row's earlier weights count for;
// returns whether that is so for any row of the warp.
template <bool kMasked, int kKeys>
__device__ __forceinline__ bool Exponents(float (&s)[kKeys / 2], float (&ceiling)[2],
                                          float scale_log2, float (&factor)[2]) {
  factor[0] = factor[1] = 1;
  float base[2] = {ceiling[0], ceiling[1]};
  bool raised = false;
  if (kMasked) raised = RaiseByMaximum<kKeys>(s, ceiling, scale_log2, factor, base);
  // Weights near 1 leave sums of a row far from overflow, so it is enough to look for a positive
  // exponent: the sign bits of the negated ones. Half as many instructions as the row's maximum,
  // and nothing to ask of the other lanes.
  uint32_t signs = 0;
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) {
    s[i] = fmaf(s[i], -scale_log2, base[i / 2 % 2]);
    signs |= __float_as_uint(s[i]);
  }
  if (!kMasked && __any_sync(0xffffffffu, static_cast<int32_t>(signs) < 0)) {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) s[i] = -s[i];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = RowMax<kKeys>(s, r);
      const float raise = top > 0 ? top + kSlack : 0;
      factor[r] = Exp2(-raise);
      ceiling[r] += raise;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& x = s[i / 2 * 4 + r * 2 + i % 2];
        x = raise - x;
      }
    }
    raised = true;
  }
#pragma unroll
  for (int i = 0; i < kKeys / 2; ++i) s[i] = -s[i];
  return kMasked ? __any_sync(0xffffffffu, raised) : raised;
}

// Half a block's exponents become weights and join their row's sum.
template <int kKeys, int kHalf>
__device__ __forceinline__ void Weights(float (&s)[kKeys / 2], float (&sum)[2]) {
  float even[2] = {sum[0], sum[1]};
  float odd[2] = {0, 0};
#pragma unroll
  for (int i = kHalf * kKeys / 4; i < (kHalf + 1) * kKeys / 4; i += 2) {
    s[i] = Exp2(s[i]);
    s[i + 1] = Exp2(s[i + 1]);
    even[i / 2 % 2] += s[i];
    odd[i / 2 % 2] += s[i + 1];
  }
  sum[0] = even[0] + odd[0];
  sum[1] = even[1] + odd[1];
}

// Weights as the A operand of the next product, in f16 or bf16.
template <bool kF16, int kKeys>
__device__ __forceinline__ void Pack(const float (&s)[kKeys / 2], uint32_t (&p)[kKeys / 4]) {
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    p[i] = kF16 ? PackF16(s[2 * i], s[2 * i + 1]) : PackBf16(s[2 * i], s[2 * i + 1]);
  }
}

template <int kCount>
__device__ __forceinline__ void Rescale(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= factor[i / 2 % 2];
}

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_SOFTMAX_CUH_
