// Four FP8 codes of a register as f16 (fp8.cuh has pairs).
#ifndef KERNELS_PTX_FP8_QUAD_CUH_
#define KERNELS_PTX_FP8_QUAD_CUH_

#include <cstdint>

namespace millrace {

// Of the two low bytes, and of the two high ones.
struct WidenedQuad {
  uint32_t low, high;
};

// Of E4M3. Exact; NaN stays NaN. Zeros before sm_89. The halves go to the conversions as they lie:
// a shift in front of each would be an instruction more for two codes.
__device__ __forceinline__ WidenedQuad WidenE4M3Quad(uint32_t codes) {
  WidenedQuad wide = {};
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(wide.low), "=r"(wide.high)
      : "r"(codes));
#endif
  return wide;
}

}  // namespace millrace

#endif  // KERNELS_PTX_FP8_QUAD_CUH_
