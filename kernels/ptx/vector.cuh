// Elements of f32 and bf16 in device code: conversions, and several of them as one word.
#ifndef KERNELS_PTX_VECTOR_CUH_
#define KERNELS_PTX_VECTOR_CUH_

#include <cuda_bf16.h>

namespace millrace {

__device__ __forceinline__ float Widen(float x) { return x; }
__device__ __forceinline__ float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest, ties to even.
__device__ __forceinline__ void Narrow(float x, float* to) { *to = x; }
__device__ __forceinline__ void Narrow(float x, __nv_bfloat16* to) { *to = __float2bfloat16_rn(x); }

// kWidth elements, loaded and stored as one word of at most 16 bytes, which must be aligned to its
// size.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vec {
  static_assert(sizeof(T) * kWidth <= 16);
  T v[kWidth];
};

template <int kWidth, typename T>
__device__ __forceinline__ Vec<T, kWidth> LoadVec(const T* from) {
  return *reinterpret_cast<const Vec<T, kWidth>*>(from);
}

template <typename T, int kWidth>
__device__ __forceinline__ void StoreVec(T* to, const Vec<T, kWidth>& vec) {
  *reinterpret_cast<Vec<T, kWidth>*>(to) = vec;
}

}  // namespace millrace

#endif  // KERNELS_PTX_VECTOR_CUH_
