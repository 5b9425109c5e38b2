// The special-function unit's power of two.
#ifndef KERNELS_PTX_EXP2_CUH_
#define KERNELS_PTX_EXP2_CUH_

namespace millrace {

// 2^x within 2 ulp; 0 for -inf, and for results below the smallest normal number.
__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace millrace

#endif  // KERNELS_PTX_EXP2_CUH_
