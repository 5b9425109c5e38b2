// FP8 E4M3 codes in device code (sm_89 and later).
#ifndef KERNELS_PTX_E4M3_CUH_
#define KERNELS_PTX_E4M3_CUH_

#include <cstdint>

namespace millrace {

// A code as stored.
struct E4M3 {
  uint8_t bits;
};

// Two codes, `low` in the low byte: rounded to nearest, ties to even; beyond 448 they are 448. NaN
// keeps its sign.
__device__ __forceinline__ uint32_t EncodeE4M3Pair(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

// Two codes as f16, the low byte's in the low half. Exact; NaN stays NaN.
__device__ __forceinline__ uint32_t WidenE4M3Pair(uint32_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
}

}  // namespace millrace

#endif  // KERNELS_PTX_E4M3_CUH_
