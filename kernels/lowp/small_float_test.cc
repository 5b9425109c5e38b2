#include "kernels/lowp/small_float.h"

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A format written down again from its definition, without the tables and constants under test.
struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  int finite_codes;  // of one sign
  uint8_t nan;
  uint8_t negative_nan;
  uint8_t (*encode)(double);
  float (*decode)(uint8_t);

  int sign_bit() const { return 1 << (exponent_bits + mantissa_bits); }
  double Value(int magnitude) const {
    const int field = magnitude >> mantissa_bits;
    const double fraction = std::ldexp(magnitude & ((1 << mantissa_bits) - 1), -mantissa_bits);
    return field == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, field - bias);
  }
  // The nearest of all finite codes, the even one of two.
  uint8_t Nearest(double x) const {
    if (x != x) return std::signbit(x) ? negative_nan : nan;
    const double magnitude = std::fabs(x);
    int best = finite_codes - 1;
    if (magnitude < Value(best)) {
      for (int code = finite_codes - 1; code >= 0; --code) {
        const double distance = std::fabs(magnitude - Value(code));
        const double smallest = std::fabs(magnitude - Value(best));
        if (distance < smallest || (distance == smallest && code % 2 == 0)) best = code;
      }
    }
    return static_cast<uint8_t>(best | (std::signbit(x) ? sign_bit() : 0));
  }
};

std::vector<Format> Formats() {
  return {{"E4M3", 4, 3, 7, 0x7f, 0x7f, 0xff, [](double x) { return EncodeE4M3(x); },
           [](uint8_t code) { return kE4M3Values[code]; }},
          {"E5M2", 5, 2, 15, 0x7c, 0x7f, 0xff, [](double x) { return EncodeE5M2(x); },
           [](uint8_t code) { return kE5M2Values[code]; }},
          {"E2M1", 2, 1, 1, 8, 7, 7, [](double x) { return EncodeE2M1(x); },
           [](uint8_t code) { return kE2M1Values[code]; }}};
}

TEST(SmallFloat, EachFiniteCodeIsItsValueAndBack) {
  for (const Format& format : Formats()) {
    for (int code = 0; code < format.finite_codes; ++code) {
      for (const int sign : {0, format.sign_bit()}) {
        const auto whole = static_cast<uint8_t>(code | sign);
        const double want = sign == 0 ? format.Value(code) : -format.Value(code);
        ASSERT_EQ(static_cast<double>(format.decode(whole)), want) << format.name << code;
        ASSERT_EQ(std::signbit(format.decode(whole)), sign != 0) << format.name << code;
        ASSERT_EQ(format.encode(want), whole) << format.name << code;
      }
    }
  }
}

TEST(SmallFloat, CodesThatAreNotFinite) {
  for (const int code : {0x7f, 0xff}) EXPECT_TRUE(std::isnan(kE4M3Values[code]));
  for (const int code : {0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff}) {
    EXPECT_TRUE(std::isnan(kE5M2Values[code]));
  }
  EXPECT_EQ(kE5M2Values[0x7c], kInfinity);
  EXPECT_EQ(kE5M2Values[0xfc], -kInfinity);
  EXPECT_TRUE(std::isnan(kE8M0Values[0xff]));
  EXPECT_EQ(EncodeE4M3(kInfinity), 0x7e);
  EXPECT_EQ(EncodeE5M2(-kInfinity), 0xfb);
  EXPECT_EQ(EncodeE2M1(-kInfinity), 15);
  EXPECT_EQ(EncodeE4M3(std::copysign(kNan, -1.0f)), 0xff);
  EXPECT_EQ(EncodeE2M1(std::copysign(kNan, -1.0f)), 7);
}

TEST(SmallFloat, AllBFloat16) {
  for (const Format& format : Formats()) {
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto x = static_cast<double>(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
      ASSERT_EQ(format.encode(x), format.Nearest(x)) << format.name << " of " << x;
    }
  }
}

// Ties and their neighbours among floats and doubles, between each two codes and at the top.
TEST(SmallFloat, HalfwayPoints) {
  for (const Format& format : Formats()) {
    for (int code = 0; code < format.finite_codes; ++code) {
      const double low = format.Value(code);
      const double high = code + 1 < format.finite_codes ? format.Value(code + 1) : 2 * low;
      const auto tie = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(tie), (low + high) / 2);
      const std::set<double> points = {
          static_cast<double>(tie), static_cast<double>(std::nextafter(tie, 0.0f)),
          static_cast<double>(std::nextafter(tie, kInfinity)),
          std::nextafter(static_cast<double>(tie), 0.0),
          std::nextafter(static_cast<double>(tie), static_cast<double>(kInfinity))};
      for (const double x : points) {
        ASSERT_EQ(format.encode(x), format.Nearest(x)) << format.name << " of " << x;
        ASSERT_EQ(format.encode(-x), format.Nearest(-x)) << format.name << " of " << -x;
      }
    }
  }
  // Spelt out, for the four-bit format: down at 0.25, 1.25, 2.5, 5, up at 0.75, 1.75, 3.5.
  EXPECT_EQ(EncodeE2M1(0.25), 0);
  EXPECT_EQ(EncodeE2M1(0.75), 2);
  EXPECT_EQ(EncodeE2M1(1.25), 2);
  EXPECT_EQ(EncodeE2M1(1.75), 4);
  EXPECT_EQ(EncodeE2M1(2.5), 4);
  EXPECT_EQ(EncodeE2M1(3.5), 6);
  EXPECT_EQ(EncodeE2M1(5), 6);
}

// Every bf16 number under every scale of MXFP4 and NVFP4, without a division in the oracle.
TEST(SmallFloat, E2M1OfAllBFloat16UnderAllScales) {
  constexpr double kTies[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  std::vector<double> scales;
  for (int code = 0; code < 255; ++code) scales.push_back(std::ldexp(1.0, code - 127));
  for (int code = 1; code < 0x7f; ++code) scales.push_back(Formats()[0].Value(code));
  for (const double scale : scales) {
    int wrong = 0;
    double ties[7];
    for (int i = 0; i < 7; ++i) ties[i] = kTies[i] * scale;
    for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
      const auto x = static_cast<double>(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
      uint8_t want = 0;
      for (int i = 0; i < 7; ++i) want += i % 2 == 0 ? x > ties[i] : x >= ties[i];
      wrong += EncodeE2M1(x / scale) != want;
      wrong += EncodeE2M1(-x / scale) != (want | 8);
    }
    ASSERT_EQ(wrong, 0) << "scale " << scale;
  }
}

TEST(SmallFloat, E8M0) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(static_cast<double>(kE8M0Values[code]), std::ldexp(1.0, code - 127));
    EXPECT_EQ(EncodeE8M0RoundUp(std::ldexp(1.0, code - 127)), code);
  }
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const auto x = static_cast<double>(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
    int want = 0;
    while (want < 254 && std::ldexp(1.0, want - 127) < x) ++want;
    ASSERT_EQ(EncodeE8M0RoundUp(x), want) << x;
  }
  EXPECT_EQ(EncodeE8M0RoundUp(std::nextafter(1.0, 2.0)), 128);
  EXPECT_EQ(EncodeE8M0RoundUp(kInfinity), 254);
  EXPECT_EQ(EncodeE8M0RoundUp(kNan), 255);
}

}  // namespace
}  // namespace millrace
