// FP8 codes in device code: instructions from sm_89 on, CUDA's emulation of them before.
#ifndef KERNELS_PTX_FP8_CUH_
#define KERNELS_PTX_FP8_CUH_

#include <cuda_fp8.h>

#include <cstdint>

namespace millrace {

// A code as stored.
struct E4M3 {
  uint8_t bits;
};

// Two codes of E4M3, `low` in the low byte: rounded to nearest, ties to even; beyond 448 they are
// 448. NaN becomes 0x7f.
__device__ __forceinline__ uint32_t EncodeE4M3Pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
#endif
}

// Likewise of E5M2: beyond 57344 they are 57344.
__device__ __forceinline__ uint32_t EncodeE5M2Pair(float low, float high) {
#if __CUDA_ARCH__ >= 890
  uint16_t codes;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
#else
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E5M2);
#endif
}

// Two codes of E4M3 as f16, the low byte's in the low half. Exact; NaN stays NaN.
__device__ __forceinline__ uint32_t WidenE4M3Pair(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
#else
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return halves.x | static_cast<uint32_t>(halves.y) << 16;
#endif
}

}  // namespace millrace

#endif  // KERNELS_PTX_FP8_CUH_
