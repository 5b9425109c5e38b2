// Words of a row's channels in device code, as floats.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_WORDS_CUH_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_WORDS_CUH_

#include <cuda_bf16.h>

#include "kernels/moe_exchange/moe_exchange_kernel.h"

namespace millrace {

// kWidth channels: one, or four of an aligned row.
template <int kWidth>
struct Channels {
  float v[kWidth];
};

template <int kWidth>
__device__ __forceinline__ Channels<kWidth> LoadChannels(const float* from) {
  if constexpr (kWidth == 1) {
    return {{*from}};
  } else {
    const float4 v = *reinterpret_cast<const float4*>(from);
    return {{v.x, v.y, v.z, v.w}};
  }
}

template <int kWidth>
__device__ __forceinline__ Channels<kWidth> LoadChannels(const __nv_bfloat16* from) {
  if constexpr (kWidth == 1) {
    return {{__bfloat162float(*from)}};
  } else {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    return {{__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
             __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u)}};
  }
}

template <int kWidth>
__device__ __forceinline__ void StoreChannels(float* to, const Channels<kWidth>& c) {
  if constexpr (kWidth == 1) {
    *to = c.v[0];
  } else {
    *reinterpret_cast<float4*>(to) = make_float4(c.v[0], c.v[1], c.v[2], c.v[3]);
  }
}

// The pieces of a row that this block has: blockIdx.y, blockIdx.y + gridDim.y, ...
template <int kPiece>
struct BlockPieces {
  int count;

  __device__ __forceinline__ explicit BlockPieces(int hidden) {
    const int all = (hidden + kPiece - 1) / kPiece;
    const int first = static_cast<int>(blockIdx.y), step = static_cast<int>(gridDim.y);
    count = first < all ? (all - first + step - 1) / step : 0;
  }
  // The first channel of the i-th.
  __device__ __forceinline__ static int Begin(int i) {
    return (i * static_cast<int>(gridDim.y) + static_cast<int>(blockIdx.y)) * kPiece;
  }
};

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_KERNEL_WORDS_CUH_
