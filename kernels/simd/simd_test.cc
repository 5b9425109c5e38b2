#include "kernels/simd/simd.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace millrace::simd {
namespace {

constexpr int kLanes = 4;  // the baseline, which every machine runs

double Ulps(float got, double want) {
  const float nearest = static_cast<float>(want);
  const double ulp = std::nextafter(std::fabs(nearest), 3e38f) - std::fabs(nearest);
  return std::fabs(got - want) / ulp;
}

TEST(SimdTest, ExpIsWithinTwoUlp) {
  double worst = 0;
  for (float x = -87.29f; x < 88.0f; x += 1.37e-4f) {
    const auto y = Exp(Set<kLanes>(x));
    worst = std::max(worst, Ulps(y[0], std::exp(static_cast<double>(x))));
  }
  EXPECT_LT(worst, 2.0);
  RecordProperty("worst_ulp_times_1000", static_cast<int>(worst * 1000));
}

TEST(SimdTest, ExpAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  const F<kLanes> y = Exp(F<kLanes>{0.0f, -inf, -88.0f, std::nanf("")});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST(SimdTest, SinCosUpToLargeAngles) {
  for (const double factor : {1.0, 1e3, 1048576.0, 1e8}) {
    for (int i = -3000; i < 3000; ++i) {
      const float x = static_cast<float>(i) * 0.00111f;
      const double angle = factor * static_cast<double>(x);
      F<kLanes> s, c;
      SinCos<kLanes>(factor, Set<kLanes>(x), &s, &c);
      ASSERT_NEAR(s[1], std::sin(angle), 1.5e-7) << angle;
      ASSERT_NEAR(c[1], std::cos(angle), 1.5e-7) << angle;
    }
  }
}

TEST(SimdTest, BFloat16RoundTripsLikeTheScalarConversion) {
  const float inf = std::numeric_limits<float>::infinity();
  const float values[] = {0.0f, -0.0f, 1.0f,    1.00390625f, 1.01171875f, -3.3e38f,
                          inf,  -inf,  3.4e38f, 1e-40f,      -1.23456f,   65504.0f};
  for (const float x : values) {
    BFloat16 out[kLanes];
    Store<kLanes>(out, Set<kLanes>(x));
    EXPECT_EQ(out[2].bits, ToBFloat16(x).bits) << x;
    EXPECT_EQ(Load<kLanes>(out)[3], ToFloat(out[3])) << x;
  }
  BFloat16 out[kLanes];
  Store<kLanes>(out, Set<kLanes>(std::nanf("")));
  EXPECT_TRUE(std::isnan(ToFloat(out[0])));
}

TEST(SimdTest, LoadPairTakesEachElementOnce) {
  float wide[2 * kLanes];
  BFloat16 narrow[2 * kLanes];
  for (int i = 0; i < 2 * kLanes; ++i) narrow[i] = ToBFloat16(wide[i] = static_cast<float>(i - 3));
  F<kLanes> a, b;
  LoadPair<kLanes>(wide, &a, &b);
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(a[i], wide[i]);
    EXPECT_EQ(b[i], wide[kLanes + i]);
  }
  LoadPair<kLanes>(narrow, &a, &b);
  for (int i = 0; i < kLanes; ++i) {
    EXPECT_EQ(a[i], wide[2 * i]);
    EXPECT_EQ(b[i], wide[2 * i + 1]);
  }
}

template <int kWidth>
void CheckReductions() {
  F<kWidth> v[4];
  float sums[4] = {};
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < kWidth; ++j) {
      v[i][j] = static_cast<float>((i * 37 + j * 11) % 23);
      sums[i] += v[i][j];
    }
    EXPECT_EQ(Sum(v[i]), sums[i]);
  }
  const Types<4>::F all = Sum4(v[0], v[1], v[2], v[3]);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(all[i], sums[i]);
  for (int at = 0; at < kWidth; ++at) {
    F<kWidth> w = Set<kWidth>(-2.0f);
    w[at] = -1.0f;
    EXPECT_EQ(MaxLane(w), -1.0f);
  }
}

TEST(SimdTest, Reductions) {
  CheckReductions<4>();
  CheckReductions<8>();
  CheckReductions<16>();
}

}  // namespace
}  // namespace millrace::simd
