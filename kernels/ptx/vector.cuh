// Elements of f32, bf16 and E4M3 in device code: several of them as one word, and their values as
// floats.
#ifndef KERNELS_PTX_VECTOR_CUH_
#define KERNELS_PTX_VECTOR_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/fp8.cuh"

namespace millrace {

// kWidth elements of T (float, __nv_bfloat16 or E4M3) as they lie in memory: a single one, 16
// bytes, or 8 codes. Kept packed, because a compiler that sees single bf16 elements may give each a
// register of its own.
template <typename T, int kWidth>
struct Vec {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * kWidth;
  template <int kSize, typename Word, typename Else>
  using Sized = std::conditional_t<kBytes == kSize, Word, Else>;
  using Raw = Sized<16, uint4, Sized<8, uint2, Sized<4, uint32_t, Sized<2, uint16_t, uint8_t>>>>;
  static_assert(sizeof(Raw) == kBytes);
  Raw raw;
};

// Aligned to the size of the vector.
template <int kWidth, typename T>
__device__ __forceinline__ Vec<T, kWidth> LoadVec(const T* from) {
  using V = Vec<T, kWidth>;
  return V{*reinterpret_cast<const typename V::Raw*>(from)};
}

template <typename T, int kWidth>
__device__ __forceinline__ void StoreVec(T* to, const Vec<T, kWidth>& vec) {
  *reinterpret_cast<typename Vec<T, kWidth>::Raw*>(to) = vec.raw;
}

// The values of a vector.
template <int kWidth>
struct Floats {
  float v[kWidth];
};

template <typename T, int kWidth>
__device__ __forceinline__ Floats<kWidth> Widened(const Vec<T, kWidth>& vec) {
  Floats<kWidth> out;
  if constexpr (kWidth == 1) {
    const uint32_t bits = vec.raw;
    out.v[0] = __uint_as_float(sizeof(T) == 2 ? bits << 16 : bits);
  } else {
    const uint32_t words[4] = {vec.raw.x, vec.raw.y, vec.raw.z, vec.raw.w};
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const uint32_t word = words[i * sizeof(T) / 4];
      const uint32_t bits = i % 2 == 0 ? word << 16 : word & 0xffff0000u;
      out.v[i] = __uint_as_float(sizeof(T) == 2 ? bits : word);
    }
  }
  return out;
}

// Rounded to nearest, ties to even.
template <typename T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> Narrowed(const Floats<kWidth>& values) {
  if constexpr (kWidth == 1 && sizeof(T) == 2) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(values.v[0]))};
  } else if constexpr (kWidth == 1) {
    return {__float_as_uint(values.v[0])};
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 2) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(words[i])
            : "f"(values.v[2 * i + 1]), "f"(values.v[2 * i]));
      } else {
        words[i] = __float_as_uint(values.v[i]);
      }
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }
}

// The codes of values * inverse.
template <int kWidth>
__device__ __forceinline__ Vec<E4M3, kWidth> Encoded(const Floats<kWidth>& values, float inverse) {
  if constexpr (kWidth == 1) {
    return {static_cast<uint8_t>(EncodeE4M3Pair(__fmul_rn(values.v[0], inverse), 0))};
  } else {
    static_assert(kWidth == 8);
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* v = values.v + 4 * i;
      words[i] = EncodeE4M3Pair(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)) |
                 EncodeE4M3Pair(__fmul_rn(v[2], inverse), __fmul_rn(v[3], inverse)) << 16;
    }
    return {make_uint2(words[0], words[1])};
  }
}

template <typename To, typename From, int kWidth>
__device__ __forceinline__ Vec<To, kWidth> Converted(const Vec<From, kWidth>& vec) {
  if constexpr (std::is_same_v<From, To>) {
    return vec;
  } else {
    return Narrowed<To>(Widened(vec));
  }
}

}  // namespace millrace

#endif  // KERNELS_PTX_VECTOR_CUH_
