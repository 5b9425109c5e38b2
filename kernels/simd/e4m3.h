// FP8 E4M3 codes as vectors of floats, as simd.h has bf16: always inlined, for files that are
// compiled once per instruction set. kernels/lowp/small_float.h is the scalar code and the
// definition.
#ifndef KERNELS_SIMD_E4M3_H_
#define KERNELS_SIMD_E4M3_H_

#include <cstdint>

#include "kernels/simd/simd.h"

namespace millrace {

// A code as stored. NaN: 0x7f and 0xff.
struct E4M3 {
  uint8_t bits = 0;
};

namespace simd {

template <int kLanes>
struct Bytes {
  typedef uint8_t V __attribute__((vector_size(kLanes)));
};

// Exact.
template <int kLanes>
[[gnu::always_inline]] inline F<kLanes> Load(const E4M3* p) {
  using U = typename Types<kLanes>::U;
  typename Bytes<kLanes>::V bytes;
  __builtin_memcpy(&bytes, p, sizeof(bytes));
  const U code = __builtin_convertvector(bytes, U);
  const U magnitude = code & 0x7fu;
  // The exponent's bias is 120 below a float's. What has no leading bit, m / 8 * 2^-6, reads as
  // (1 + m / 8) * 2^-7.
  const F<kLanes> normal = reinterpret_cast<F<kLanes>>((magnitude << 20) + (120u << 23));
  const F<kLanes> small = (normal - 0.0078125f) * 2.0f;
  const U value = magnitude < 8u ? reinterpret_cast<U>(small) : reinterpret_cast<U>(normal);
  const U finite = value | (code & 0x80u) << 24;
  return reinterpret_cast<F<kLanes>>(magnitude == 0x7fu ? 0x7fc00000u - U{} : finite);
}

template <int kLanes>
[[gnu::always_inline]] inline void LoadPair(const E4M3* p, F<kLanes>* a, F<kLanes>* b) {
  *a = Load<kLanes>(p);
  *b = Load<kLanes>(p + kLanes);
}

// Rounds to nearest, ties to even; beyond 448 it is 448, and NaN is 0x7f.
template <int kLanes>
[[gnu::always_inline]] inline void Store(E4M3* p, F<kLanes> v) {
  using U = typename Types<kLanes>::U;
  const U bits = reinterpret_cast<U>(v);
  const F<kLanes> any = reinterpret_cast<F<kLanes>>(bits & 0x7fffffffu);
  const F<kLanes> magnitude = any > 448.0f ? 448.0f - F<kLanes>{} : any;
  const U u = reinterpret_cast<U>(magnitude);
  const U normal = ((u + 0x7ffffu + ((u >> 20) & 1u)) >> 20) - (120u << 3);
  // Below 2^-6 codes count 2^-9: what the last place of 2^14 is worth.
  const U small = reinterpret_cast<U>(magnitude + 16384.0f) - 0x46800000u;
  const U code = (u < 0x3c800000u ? small : normal) | (bits >> 24 & 0x80u);
  const U kept = (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fu - U{} : code;
  const typename Bytes<kLanes>::V bytes = __builtin_convertvector(kept, typename Bytes<kLanes>::V);
  __builtin_memcpy(static_cast<void*>(p), &bytes, sizeof(bytes));
}

}  // namespace simd
}  // namespace millrace

#endif  // KERNELS_SIMD_E4M3_H_
