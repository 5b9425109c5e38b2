// Writes latent rows on the device, in the formats of latent_row.h and bit for bit as the CPU does:
// scales are powers of two, so every product is exact or far below the smallest code.
#ifndef KERNELS_LATENT_CACHE_LATENT_STORE_CUH_
#define KERNELS_LATENT_CACHE_LATENT_STORE_CUH_

#include <cuda_bf16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/latent_cache/latent_store_args.h"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {

// The format of latent_row.h, whose host code nvcc does not see.
inline constexpr int kDeviceLatentCodes = 448;
inline constexpr int kDeviceLatentGroup = 64;
inline constexpr int kDeviceLatentDataBytes = 576;
inline constexpr int kDeviceLatentScaleBytes = 8;

// Where a row goes.
struct LatentPlace {
  int32_t page = -1;  // none where it is not one of the store
  int32_t row = 0;

  __device__ __forceinline__ bool IsIn(const LatentStoreArgs& store) const {
    return page >= 0 && page < store.pages;
  }
};

// The scale of a group and its inverse, from the largest magnitude's bits: magnitudes order as
// their bits do, infinity and NaN above all.
struct LatentScale {
  uint32_t code;
  float inverse;

  __device__ __forceinline__ explicit LatentScale(uint32_t most) {
    constexpr uint32_t kInfinity = 0x7f800000, kMantissa = 0x7fffff;
    constexpr int kSmallest = 127 - 22;
    // 448 is 1.75 x 2^8: the power is the one of amax / 2^8, or the next above a mantissa of 1.75.
    const int exponent = static_cast<int>(most >> 23) - 8 + ((most & kMantissa) > 0x600000 ? 1 : 0);
    const int biased = max(exponent, kSmallest);
    code = most >= kInfinity ? 0xff : static_cast<uint32_t>(biased);
    inverse = __uint_as_float(static_cast<uint32_t>(254 - biased) << 23);
  }

  __device__ __forceinline__ bool is_nan() const { return code == 0xff; }
};

__device__ __forceinline__ uint32_t Bf16Pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// kWords words to an address that is aligned to them, or to none.
template <int kWords>
__device__ __forceinline__ void StoreWords(uint8_t* to, const uint32_t (&words)[kWords],
                                           bool aligned) {
  if (!aligned) {
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) to[i] = static_cast<uint8_t>(words[i / 4] >> (i % 4 * 8));
  } else if constexpr (kWords == 1) {
    *reinterpret_cast<uint32_t*>(to) = words[0];
  } else {
    // FP8 rows start on 8 bytes.
#pragma unroll
    for (int i = 0; i < kWords; i += 2) {
      *reinterpret_cast<uint2*>(to + 4 * i) = make_uint2(words[i], words[i + 1]);
    }
  }
}

// kWidth (4 or 8) channels of an FP8 row from `channel` on, a multiple of kWidth. All lanes of the
// warp take part, neighbouring lanes with neighbouring channels, a group's in one warp; `in`:
// whether this lane has such channels.
template <int kWidth>
__device__ __forceinline__ void StoreFp8Channels(const LatentStoreArgs& store, LatentPlace place,
                                                 int channel, const Floats<kWidth>& x, bool in) {
  uint32_t most = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) most = max(most, __float_as_uint(x.v[j]) & 0x7fffffff);
#pragma unroll
  for (int d = kDeviceLatentGroup / kWidth / 2; d > 0; d /= 2) {
    most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
  }
  if (!in) return;
  uint8_t* const page = static_cast<uint8_t*>(store.data) + place.page * store.page_stride;
  uint8_t* const data = page + int64_t{place.row} * kDeviceLatentDataBytes;
  const bool is_code = channel < kDeviceLatentCodes;
  const LatentScale scale(most);
  if (channel % kDeviceLatentGroup == 0) {
    uint8_t* const scales = page + int64_t{store.page_rows} * kDeviceLatentDataBytes +
                            int64_t{place.row} * kDeviceLatentScaleBytes;
    scales[channel / kDeviceLatentGroup] = is_code ? static_cast<uint8_t>(scale.code) : 0;
  }
  if (is_code) {
    uint32_t words[kWidth / 4];
#pragma unroll
    for (int i = 0; i < kWidth / 4; ++i) {
      const float* const v = x.v + 4 * i;
      const uint32_t codes =
          EncodeE4M3Pair(__fmul_rn(v[0], scale.inverse), __fmul_rn(v[1], scale.inverse)) |
          EncodeE4M3Pair(__fmul_rn(v[2], scale.inverse), __fmul_rn(v[3], scale.inverse)) << 16;
      words[i] = scale.is_nan() ? 0 : codes;
    }
    StoreWords(data + channel, words, store.aligned);
  } else {
    uint32_t words[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) words[i] = Bf16Pair(x.v[2 * i], x.v[2 * i + 1]);
    StoreWords(data + 2 * channel - kDeviceLatentCodes, words, store.aligned);
  }
}

// Likewise of a row of floats or bf16, as they are; channels past the end of the row are left out.
// Lanes are on their own.
template <typename To, int kWidth>
__device__ __forceinline__ void StoreChannels(const LatentStoreArgs& store, LatentPlace place,
                                              int channel, const To (&x)[kWidth]) {
  To* const to = static_cast<To*>(store.data) + place.page * store.page_stride +
                 int64_t{place.row} * store.dim + channel;
  if (store.aligned && channel + kWidth <= store.dim) {
    using Word = std::conditional_t<sizeof(To) * kWidth == 8, uint2, uint4>;
    constexpr int kElements = static_cast<int>(sizeof(Word) / sizeof(To));
#pragma unroll
    for (int i = 0; i < kWidth; i += kElements) {
      Word word;
      memcpy(&word, x + i, sizeof(word));
      *reinterpret_cast<Word*>(to + i) = word;
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (channel + j < store.dim) to[j] = x[j];
  }
}

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_LATENT_STORE_CUH_
