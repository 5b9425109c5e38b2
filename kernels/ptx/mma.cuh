// Warp-level matrix instructions (sm_80 and later). Fragments as in the PTX ISA, "Matrix fragments
// for mma.m16n8k16": with g = lane / 4 and t = lane % 4, A holds rows g and g + 8 at columns
// 2t, 2t + 1, 2t + 8, 2t + 9; B column g at rows 2t, 2t + 1, 2t + 8, 2t + 9; C and D rows g and
// g + 8 at columns 2t and 2t + 1.
#ifndef KERNELS_PTX_MMA_CUH_
#define KERNELS_PTX_MMA_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace millrace {

// d += A B for a 16x16 A and a 16x8 B of bf16 pairs.
//   a0: row g, columns 2t..   a1: row g + 8, columns 2t..   a2: row g, 2t + 8..   a3: row g + 8
//   b0: rows 2t..             b1: rows 2t + 8..
__device__ __forceinline__ void MmaBf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                        uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Likewise of f16 pairs.
__device__ __forceinline__ void MmaF16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                       uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d += A B for a 16x32 A and a 32x8 B of E4M3 codes (sm_89): four a register, at columns 4t of A
// (a0, a1), 4t + 16 (a2, a3), rows 4t of B (b0), 4t + 16 (b1).
__device__ __forceinline__ void MmaE4M3(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Transposes an 8x8 matrix of 16-bit elements held one row a quad, two elements a lane.
__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Two floats rounded to bf16, `low` in the low half.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Two floats rounded to f16, `low` in the low half.
__device__ __forceinline__ uint32_t PackF16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// The same, what is larger becoming the largest f16, 65504.
__device__ __forceinline__ uint32_t PackF16Saturated(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Two bf16 as f16: exact but for numbers beyond 65504, which become that, and below 2^-14.
__device__ __forceinline__ uint32_t Bf16ToF16(uint32_t pair) {
  return PackF16Saturated(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

}  // namespace millrace

#endif  // KERNELS_PTX_MMA_CUH_
