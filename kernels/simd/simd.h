// Float vectors of 4, 8 or 16 lanes for CPU kernels whose one source text is compiled once per
// instruction set (4: the baseline, 8: AVX2, 16: AVX-512). Built on the compiler's vector types.
//
// Everything here is always inlined, so no code of one instruction set can be linked into another.
// Include it only in files that are compiled for the width they use.
#ifndef KERNELS_SIMD_SIMD_H_
#define KERNELS_SIMD_SIMD_H_

#include <cstdint>
#include <type_traits>

#include "kernels/core/dtype.h"

namespace millrace::simd {

template <int kLanes>
struct Types {
  typedef float F __attribute__((vector_size(kLanes * 4)));
  typedef int32_t I __attribute__((vector_size(kLanes * 4)));
  typedef uint32_t U __attribute__((vector_size(kLanes * 4)));
  typedef uint16_t H __attribute__((vector_size(kLanes * 2)));
  typedef double D __attribute__((vector_size(kLanes * 8)));
};

template <int kLanes>
using F = typename Types<kLanes>::F;
template <int kLanes>
using I = typename Types<kLanes>::I;

template <typename V>
inline constexpr int kLanesOf = sizeof(V) / 4;

// Loads and stores need no alignment. bf16 is widened exactly and narrowed like ToBFloat16().
template <int kLanes>
[[gnu::always_inline]] inline F<kLanes> Load(const float* p) {
  F<kLanes> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <int kLanes>
[[gnu::always_inline]] inline F<kLanes> Load(const BFloat16* p) {
  using U = typename Types<kLanes>::U;
  typename Types<kLanes>::H h;
  __builtin_memcpy(&h, p, sizeof(h));
  return reinterpret_cast<F<kLanes>>(__builtin_convertvector(h, U) << 16);
}

// Two vectors of consecutive elements, in the order that costs least: floats in halves, bf16 as the
// elements with even and those with odd offset. Good where order does not matter or is undone
// later.
template <int kLanes>
[[gnu::always_inline]] inline void LoadPair(const float* p, F<kLanes>* a, F<kLanes>* b) {
  *a = Load<kLanes>(p);
  *b = Load<kLanes>(p + kLanes);
}

template <int kLanes>
[[gnu::always_inline]] inline void LoadPair(const BFloat16* p, F<kLanes>* even, F<kLanes>* odd) {
  typename Types<kLanes>::U u;
  __builtin_memcpy(&u, p, sizeof(u));
  *even = reinterpret_cast<F<kLanes>>(u << 16);
  *odd = reinterpret_cast<F<kLanes>>(u & 0xffff0000u);
}

template <int kLanes>
[[gnu::always_inline]] inline void Store(float* p, F<kLanes> v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

template <int kLanes>
[[gnu::always_inline]] inline void Store(BFloat16* p, F<kLanes> v) {
  using U = typename Types<kLanes>::U;
  using H = typename Types<kLanes>::H;
  const U u = reinterpret_cast<U>(v);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  const H h = __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded, H);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof(h));
}

template <int kLanes>
[[gnu::always_inline]] inline F<kLanes> Set(float x) {
  return x - F<kLanes>{};
}

template <typename V>
[[gnu::always_inline]] inline V Max(V a, V b) {
  return a > b ? a : b;
}

// Sum and maximum of all lanes, in an order fixed by the number of lanes.
template <typename V>
[[gnu::always_inline]] inline Types<4>::F SumQuads(V v) {
  Types<4>::F parts[kLanesOf<V> / 4];
  __builtin_memcpy(parts, &v, sizeof(v));
  Types<4>::F sum = parts[0];
  for (int i = 1; i < kLanesOf<V> / 4; ++i) sum += parts[i];
  return sum;
}

template <typename V>
[[gnu::always_inline]] inline float Sum(V v) {
  const Types<4>::F s = SumQuads(v);
  return (s[0] + s[2]) + (s[1] + s[3]);
}

template <typename V>
[[gnu::always_inline]] inline float MaxLane(V v) {
  Types<4>::F parts[kLanesOf<V> / 4];
  __builtin_memcpy(parts, &v, sizeof(v));
  Types<4>::F m = parts[0];
  for (int i = 1; i < kLanesOf<V> / 4; ++i) m = Max(m, parts[i]);
  const float a = m[0] > m[1] ? m[0] : m[1];
  const float b = m[2] > m[3] ? m[2] : m[3];
  return a > b ? a : b;
}

// The sums of four vectors, in four lanes.
template <typename V>
[[gnu::always_inline]] inline Types<4>::F Sum4(V a, V b, V c, V d) {
  const Types<4>::F p = SumQuads(a), q = SumQuads(b), r = SumQuads(c), s = SumQuads(d);
  const Types<4>::F pq =
      __builtin_shufflevector(p, q, 0, 4, 1, 5) + __builtin_shufflevector(p, q, 2, 6, 3, 7);
  const Types<4>::F rs =
      __builtin_shufflevector(r, s, 0, 4, 1, 5) + __builtin_shufflevector(r, s, 2, 6, 3, 7);
  return __builtin_shufflevector(pq, rs, 0, 1, 4, 5) + __builtin_shufflevector(pq, rs, 2, 3, 6, 7);
}

// e^x for x <= 88, within 2 ulp; 0 below -87.3 (where a float would become denormal); NaN for NaN.
template <typename V>
[[gnu::always_inline]] inline V Exp(V x) {
  using Ints = I<kLanesOf<V>>;
  constexpr float kLowest = -87.3f;
  // x = n ln 2 + r. Adding 1.5 * 2^23 leaves the nearest integer n in the low bits.
  constexpr float kRound = 12582912.0f;
  const V bounded = x < kLowest ? kLowest - V{} : x;
  const V shifted = bounded * 1.44269504f + kRound;
  const V n = shifted - kRound;
  const V r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  V p = 1.395053709e-03f * r + 8.368917411e-03f;
  p = p * r + 4.166620512e-02f;
  p = p * r + 1.666651861e-01f;
  p = p * r + 5.000000095e-01f;
  p = (p * (r * r) + r) + 1.0f;
  // p is in [0.7, 1.42]: adding n to its exponent multiplies by 2^n.
  const V scaled =
      reinterpret_cast<V>(reinterpret_cast<Ints>(p) + (reinterpret_cast<Ints>(shifted) << 23));
  return x < kLowest ? V{} : scaled;
}

// sin and cos of factor * x radians, within 1.5e-7 absolute while that is below 2^29. The product
// and its reduction are done in double, so that large angles lose nothing.
template <int kLanes>
[[gnu::always_inline]] inline void SinCos(double factor, F<kLanes> x, F<kLanes>* sin,
                                          F<kLanes>* cos) {
  using Vec = F<kLanes>;
  using Ints = I<kLanes>;
  using Doubles = typename Types<kLanes>::D;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const Doubles angle = __builtin_convertvector(x, Doubles) * factor;
  const Doubles n = (angle * 0.63661977236758134 + kRound) - kRound;
  const Vec r = __builtin_convertvector(angle - n * 1.57079632679489662, Vec);
  const Ints quadrant = __builtin_convertvector(n, Ints);
  const Vec z = r * r;
  const Vec s = r + r * z * (-1.666665487e-01f + z * (8.332173589e-03f + z * -1.951666081e-04f));
  const Vec c =
      1.0f - 0.5f * z + z * z * (4.166664675e-02f + z * (-1.388736148e-03f + z * 2.443773274e-05f));
  const Ints swap = (quadrant & 1) != 0;
  const Ints sin_sign = (quadrant & 2) << 30;
  const Ints cos_sign = ((quadrant + 1) & 2) << 30;
  *sin = reinterpret_cast<Vec>(reinterpret_cast<Ints>(swap ? c : s) ^ sin_sign);
  *cos = reinterpret_cast<Vec>(reinterpret_cast<Ints>(swap ? s : c) ^ cos_sign);
}

}  // namespace millrace::simd

#endif  // KERNELS_SIMD_SIMD_H_
