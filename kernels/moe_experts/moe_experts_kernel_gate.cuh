// What an expert does between its matrices, in device code.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_GATE_CUH_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_GATE_CUH_

#include "kernels/quantize/encode.cuh"

namespace millrace {

// Below it magnitudes count as it (ActivationRounding::kFp8Per128).
inline constexpr float kMoeSmallestAmax = 1e-4f;

// 2^ceil(log2(amax / 448)).
__device__ __forceinline__ float MoeScaleOf(float amax) {
  CodeArgs args = {};
  args.rounding = CodeScale::kPowerOfTwo;
  return ScaleOf(amax, args);
}

// silu(gate) * up, clamped first. NaN passes through every comparison.
__device__ __forceinline__ float MoeGated(float gate, float up, float limit) {
  if (limit > 0) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : (up < -limit ? -limit : up);
  }
  return gate / (1.0f + expf(-gate)) * up;
}

}  // namespace millrace

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_KERNEL_GATE_CUH_
