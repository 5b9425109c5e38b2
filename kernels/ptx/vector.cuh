// Elements of f32 and bf16 in device code: several of them as one word, and their values as floats.
#ifndef KERNELS_PTX_VECTOR_CUH_
#define KERNELS_PTX_VECTOR_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

namespace millrace {

// kWidth elements of T (float or __nv_bfloat16) as they lie in memory: 2, 4 or 16 bytes. Kept
// packed, because a compiler that sees single bf16 elements may give each a register of its own.
template <typename T, int kWidth>
struct Vec {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * kWidth;
  using Raw =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 4, uint32_t, uint16_t>>;
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
