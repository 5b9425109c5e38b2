#include "kernels/quantize/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"
#include "kernels/quantize/quantize_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The definition: the nearest of all codes, the even one of two.
double ExpectedCode(double value) {
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::min(std::abs(value), 448.0);
  // Values ascend with the codes: the first one not below, or the one before it.
  const auto end = kE4M3Values.begin() + 0x7f;
  const auto above =
      static_cast<int>(std::lower_bound(kE4M3Values.begin(), end, magnitude) - kE4M3Values.begin());
  int best = std::min(above, 0x7e);
  if (best > 0) {
    const double up = kE4M3Values[static_cast<size_t>(best)] - magnitude;
    const double down = magnitude - kE4M3Values[static_cast<size_t>(best) - 1];
    if (down < up || (down == up && best % 2 == 1)) --best;
  }
  return std::signbit(value) ? best + 128 : best;
}

double ExpectedScale(double amax, QuantizeScale rounding) {
  amax = std::min(amax, static_cast<double>(std::numeric_limits<float>::max()));
  double scale = static_cast<double>(static_cast<float>(amax / 448));
  if (rounding == QuantizeScale::kPowerOfTwo) {
    scale = 0x1p-126;
    while (scale < amax / 448) scale *= 2;
  }
  return std::max(scale, 0x1p-126);
}

struct Sizes {
  int64_t tokens, size;
  QuantizeUnit unit;
  int64_t groups() const { return (size + kQuantizeGroup - 1) / kQuantizeGroup; }
  int64_t units() const {
    if (unit == QuantizeUnit::kTensor) return 1;
    return unit == QuantizeUnit::kToken ? tokens : groups() * tokens;
  }
  int64_t UnitOf(int64_t token, int64_t i) const {
    if (unit == QuantizeUnit::kTensor) return 0;
    return unit == QuantizeUnit::kToken ? token : i / kQuantizeGroup * tokens + token;
  }
};

struct Expected {
  Values codes, scale;
};
Expected Oracle(const Values& x, const Sizes& s, QuantizeScale rounding) {
  Expected e = {Values(x.size()), Values(static_cast<size_t>(s.units()))};
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t at = 0; at < x.size(); ++at) {
      const auto t = static_cast<int64_t>(at) / s.size, i = static_cast<int64_t>(at) % s.size;
      double& scale = e.scale[static_cast<size_t>(s.UnitOf(t, i))];
      if (pass == 0 && std::abs(x[at]) > scale) scale = std::abs(x[at]);
      const float inverse = 1.0f / static_cast<float>(scale);
      if (pass == 1) e.codes[at] = ExpectedCode(static_cast<float>(x[at]) * inverse);
    }
    if (pass == 1) break;
    for (double& scale : e.scale) scale = ExpectedScale(scale, rounding);
  }
  return e;
}

struct Tensors {
  Tensors(Device& device, DType dtype, const Sizes& s, int64_t padding)
      : x(device, dtype, {s.tokens, s.size}, padding),
        codes(device, DType::kU8, {s.tokens, s.size}, padding),
        scale(device, DType::kF32, ScaleShape(s), s.unit == QuantizeUnit::kGroup ? padding : 0),
        unit(s.unit) {}

  static std::vector<int64_t> ScaleShape(const Sizes& s) {
    if (s.unit != QuantizeUnit::kGroup) return {s.units()};
    return {s.groups(), s.tokens};
  }
  QuantizeArgs Args(QuantizeScale rounding) const {
    return {.x = x.view(),
            .codes = codes.view(),
            .scale = scale.view(),
            .unit = unit,
            .rounding = rounding};
  }

  GuardedTensor x, codes, scale;
  QuantizeUnit unit;
};

class QuantizeTest : public OpTest {
 protected:
  // Runs on the values that x has, and compares bit for bit.
  void Check(const Tensors& t, const Sizes& s, QuantizeScale rounding) {
    ASSERT_TRUE(Quantize(ctx(), t.Args(rounding)).ok());
    const Expected e = Oracle(t.x.Get(), s, rounding);
    EXPECT_EQ(t.scale.Get(), e.scale);
    EXPECT_EQ(t.codes.Get(), e.codes);
    EXPECT_TRUE(t.x.GuardsIntact());
    EXPECT_TRUE(t.codes.GuardsIntact());
    EXPECT_TRUE(t.scale.GuardsIntact());
  }
};

constexpr QuantizeUnit kUnits[] = {QuantizeUnit::kGroup, QuantizeUnit::kToken,
                                   QuantizeUnit::kTensor};
constexpr QuantizeScale kRoundings[] = {QuantizeScale::kF32, QuantizeScale::kPowerOfTwo};

TEST_P(QuantizeTest, AgreesWithTheDefinition) {
  for (const QuantizeCase& c : kQuantizeCases) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (QuantizeUnit unit : kUnits) {
        for (QuantizeScale rounding : kRoundings) {
          SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.size) + " unit " +
                       std::to_string(static_cast<int>(unit)));
          const Sizes s = {c.tokens, c.size, unit};
          Tensors t(device(), dtype, s, c.row_padding);
          TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.size));
          t.x.SetNormal(rng, 3);
          Check(t, s, rounding);
        }
      }
    }
  }
}

// Every bf16 there is, each 128 neighbours with a scale of their own.
TEST_P(QuantizeTest, TakesAllBf16) {
  const Sizes s = {512, 128, QuantizeUnit::kGroup};
  Tensors t(device(), DType::kBF16, s, 0);
  Values x;
  for (int bits = 0; bits < 65536; ++bits) {
    x.push_back(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
  }
  t.x.Set(x);
  for (QuantizeScale rounding : kRoundings) Check(t, s, rounding);
}

// Every bf16 that fits, under a scale of one: the codes are those of the format.
TEST_P(QuantizeTest, RoundsAllBf16ToNearestEven) {
  Values x;
  for (int bits = 0; bits < 65536; ++bits) {
    const double value = ToFloat(BFloat16{static_cast<uint16_t>(bits)});
    if (std::abs(value) <= 448 || std::isnan(value)) {
      if (x.size() % 128 == 0) x.push_back(448);
      x.push_back(value);
    }
  }
  x.resize((x.size() + 127) / 128 * 128, 448);
  const Sizes s = {static_cast<int64_t>(x.size() / 128), 128, QuantizeUnit::kGroup};
  Tensors t(device(), DType::kBF16, s, 0);
  t.x.Set(x);
  ASSERT_TRUE(Quantize(ctx(), t.Args(QuantizeScale::kPowerOfTwo)).ok());
  EXPECT_EQ(t.scale.Get(), Values(static_cast<size_t>(s.tokens), 1.0));
  const Values codes = t.codes.Get();
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(codes[i], std::isnan(x[i]) ? 0x7f : ExpectedCode(x[i])) << x[i];
    ASSERT_EQ(codes[i], std::isnan(x[i]) ? 0x7f : EncodeE4M3(x[i])) << x[i];
  }
}

TEST_P(QuantizeTest, ScalesThatArePowersOfTwoRoundUp) {
  const Sizes s = {6, 1, QuantizeUnit::kToken};
  Tensors t(device(), DType::kF32, s, 0);
  t.x.Set({448, std::nextafter(448.0f, 1000.0f), std::nextafter(448.0f, 0.0f), 224, -450, 1});
  ASSERT_TRUE(Quantize(ctx(), t.Args(QuantizeScale::kPowerOfTwo)).ok());
  EXPECT_EQ(t.scale.Get(), (Values{1, 2, 1, 0.5, 2, 1.0 / 256}));
}

TEST_P(QuantizeTest, DefinesZerosInfinitiesAndNan) {
  const Sizes s = {4, 4, QuantizeUnit::kToken};
  Tensors t(device(), DType::kF32, s, 0);
  t.x.Set({0, -0.0, 0, 0, kNan, -kNan, 2, -2, kInfinity, -kInfinity, 1, kNan, kNan, kNan, kNan, 0});
  Check(t, s, QuantizeScale::kF32);
  EXPECT_EQ(t.scale.Get()[0], 0x1p-126);
  const Values codes = t.codes.Get();
  EXPECT_EQ(Values(codes.begin(), codes.begin() + 12),
            (Values{0, 0x80, 0, 0, 0x7f, 0x7f, 0x7e, 0xfe, 0x7e, 0xfe, 0, 0x7f}));
  Check(t, s, QuantizeScale::kPowerOfTwo);
}

TEST_P(QuantizeTest, SmallestFloats) {
  const Sizes s = {3, 3, QuantizeUnit::kToken};
  Tensors t(device(), DType::kF32, s, 0);
  t.x.Set({0x1p-149, -0x1p-140, 0, 0x1p-126, 0x1p-130, -0x1p-118, 0x1p-117, 0x1.cp-118, 0x1p-120});
  for (QuantizeScale rounding : kRoundings) Check(t, s, rounding);
}

TEST_P(QuantizeTest, EmptyCalls) {
  for (QuantizeUnit unit : kUnits) {
    const Sizes s = {0, 5, unit};
    Tensors t(device(), DType::kF32, s, 0);
    EXPECT_TRUE(Quantize(ctx(), t.Args(QuantizeScale::kF32)).ok());
  }
}

TEST_P(QuantizeTest, RefusesWhatDoesNotFit) {
  const Sizes s = {3, 130, QuantizeUnit::kGroup};
  const Tensors t(device(), DType::kF32, s, 0);
  QuantizeArgs args = t.Args(QuantizeScale::kF32);
  args.codes = args.codes.Cols(0, 129);
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: codes.dim(1) = 129, want 130");
  args = t.Args(QuantizeScale::kF32);
  args.scale = args.scale.Rows(0, 1);
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: scale.dim(0) = 1, want 2");
  args = t.Args(QuantizeScale::kF32);
  args.unit = QuantizeUnit::kToken;
  EXPECT_EQ(Quantize(ctx(), args).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
