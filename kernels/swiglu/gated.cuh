// Words of the gated activation: of Swiglu and of the ops that go on from there.
#ifndef KERNELS_SWIGLU_GATED_CUH_
#define KERNELS_SWIGLU_GATED_CUH_

#include "kernels/ptx/vector.cuh"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {

// Exact enough for each dtype: f32 to a few ulp, bf16 far below its rounding. Large -gate gives
// exp = inf and a zero, of whatever sign.
__device__ __forceinline__ float Silu(float gate, float) { return gate / (1.0f + expf(-gate)); }
__device__ __forceinline__ float Silu(float gate, __nv_bfloat16) {
  return __fdividef(gate, 1.0f + __expf(-gate));
}

// At most `limit`; NaN, which fails the comparison, stays.
__device__ __forceinline__ float Below(float x, float limit) { return x > limit ? limit : x; }

// What outputs i to i + kWidth - 1 of token t are made of.
template <typename T, int kWidth>
struct GateUpWords {
  Vec<T, kWidth> gates, ups;
};

template <typename T, int kWidth>
__device__ __forceinline__ GateUpWords<T, kWidth> LoadGateUp(const SwigluKernelArgs& args, int t,
                                                             int i) {
  // Before column i lie i / block whole blocks of gates, and as many of ups.
  const int64_t skipped = static_cast<int64_t>(i / args.block) * args.block;
  const T* from = static_cast<const T*>(args.x) + t * args.x_stride + i + skipped;
  return {LoadVec<kWidth>(from), LoadVec<kWidth>(from + args.block)};
}

template <typename T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> Gated(const GateUpWords<T, kWidth>& x, float limit) {
  Floats<kWidth> y = Widened(x.gates);
  const Floats<kWidth> up = Widened(x.ups);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float bounded = -Below(-Below(up.v[j], limit), limit);
    y.v[j] = Silu(Below(y.v[j], limit), T()) * bounded;
  }
  return Narrowed<T>(y);
}

}  // namespace millrace

#endif  // KERNELS_SWIGLU_GATED_CUH_
