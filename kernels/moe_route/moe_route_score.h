// The score of a logit, for both compilers: only operations that IEEE rounds in one way, each by
// itself, so that every device gets the same bits and makes the same choices.
#ifndef KERNELS_MOE_ROUTE_MOE_ROUTE_SCORE_H_
#define KERNELS_MOE_ROUTE_MOE_ROUTE_SCORE_H_

#include <bit>
#include <cstdint>

namespace millrace {

// Each rounded to nearest, by itself: nvcc would make multiply-adds of plain products and sums, and
// the CPU's file is compiled without them.
constexpr float RouteAdd(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

constexpr float RouteMul(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

// Of c[0] + c[1] x + c[2] x^2 ...
template <int kSize>
constexpr float RoutePolynomial(const float (&c)[kSize], float x) {
  float sum = c[kSize - 1];
  for (int i = kSize - 2; i >= 0; --i) sum = RouteAdd(RouteMul(sum, x), c[i]);
  return sum;
}

// 2^n, -126 <= n <= 127.
constexpr float RoutePowerOfTwo(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

// e^-a for a >= 0, within 2 ulp; of more than 104, and of NaN, zero.
constexpr float RouteExp(float a) {
  constexpr float kLast = 110;             // far enough for zero, near enough for powers of two
  constexpr float kToInteger = 0x1.8p23f;  // a sum with it has no digits behind the point
  constexpr float kLog2E = 0x1.715476p0f;
  // ln 2 in two parts: multiples of the first are exact.
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 1.42860682e-6f;
  // (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, through its values at Chebyshev's points.
  constexpr float kCoefficients[] = {0.5f, 0.166665770f, 0.0416665547f, 8.36317307e-3f,
                                     1.39261761e-3f};
  const float x = a < kLast ? -a : -kLast;
  const float shifted = RouteAdd(RouteMul(x, kLog2E), kToInteger);
  const auto n =
      static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kToInteger));
  const float k = RouteAdd(shifted, -kToInteger);
  const float r = RouteAdd(RouteAdd(x, RouteMul(k, -kLn2High)), RouteMul(k, -kLn2Low));
  const float rest = RouteMul(RouteMul(r, r), RoutePolynomial(kCoefficients, r));
  const float power = RouteAdd(1, RouteAdd(r, rest));
  // By halves of n, for results below the smallest normal number.
  const int32_t half = n >> 1;
  return RouteMul(RouteMul(power, RoutePowerOfTwo(half)), RoutePowerOfTwo(n - half));
}

// softplus(x) = log(1 + e^x) as max(x, 0) + log1p(e^-|x|): neither end overflows or loses its
// digits. Its root, as IEEE rounds roots, is the score: within 2 ulp above x = -85, where e^x loses
// digits to come. NaN of NaN.
constexpr float RouteSoftplus(float x) {
  // (log1p(u) - u) / u^2 for 0 <= u <= 1, through its values at Chebyshev's points.
  constexpr float kCoefficients[] = {-0.499999970f,  0.333328419f,  -0.249865262f,
                                     0.198541062f,   -0.158475657f, 0.115618454f,
                                     -0.0667577250f, 0.0252240543f, -4.46621160e-3f};
  const float u = RouteExp(x < 0 ? -x : x);
  const float log1p = RouteAdd(u, RouteMul(RouteMul(u, u), RoutePolynomial(kCoefficients, u)));
  return RouteAdd(x < 0 ? 0.0f : x, log1p);
}

}  // namespace millrace

#endif  // KERNELS_MOE_ROUTE_MOE_ROUTE_SCORE_H_
