#include "kernels/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/rope/rope_cases.h"
#include "kernels/rope/rope_frequencies.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Operands {
  Operands(Device& device, const RopeCase& c, uint64_t seed, double last_position = 8192)
      : x(device, c.dtype, {c.tokens, c.heads, c.dim}, c.row_padding),
        positions(device, DType::kI32, {c.tokens}),
        inv_freq(device, DType::kF32, {c.dim / 2}) {
    TestRng rng(seed);
    x.SetNormal(rng);
    positions.SetIntegers(rng, 0, static_cast<int64_t>(last_position));
    std::vector<double> frequencies(static_cast<size_t>(c.dim / 2));
    for (size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] = std::pow(1e4, -2.0 * static_cast<double>(i) / static_cast<double>(c.dim));
    }
    inv_freq.Set(frequencies);
  }

  RopeArgs Args() const {
    return {.x = x.view(), .positions = positions.view(), .inv_freq = inv_freq.view()};
  }

  // From the formula, in double.
  std::vector<double> Oracle() const {
    std::vector<double> out = x.Get();
    const std::vector<double> at = positions.Get(), frequency = inv_freq.Get();
    const size_t heads = static_cast<size_t>(x.view().dim(1)), half = frequency.size();
    for (size_t row = 0; row < at.size() * heads; ++row) {
      double* head = out.data() + row * 2 * half;
      for (size_t i = 0; i < half; ++i) {
        const double angle = at[row / heads] * frequency[i];
        const double a = head[i], b = head[i + half];
        head[i] = a * std::cos(angle) - b * std::sin(angle);
        head[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
    return out;
  }

  GuardedTensor x, positions, inv_freq;
};

// sin and cos are within 1.5e-7, values reach 5; bf16 results add half a unit in their last place.
Tolerance ToleranceOf(DType dtype) {
  return {.absolute = 3e-6, .relative = dtype == DType::kF32 ? 0 : 1.0 / 256};
}

class RopeTest : public OpTest {
 protected:
  void ExpectRight(const RopeCase& c, double last_position = 8192) {
    SCOPED_TRACE(c.name);
    Operands o(device(), c, 3, last_position);
    const std::vector<double> want = o.Oracle();
    const absl::Status status = Rope(ctx(), o.Args());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(AllClose(o.x.Get(), want, ToleranceOf(c.dtype)));
    EXPECT_TRUE(o.x.GuardsIntact());
  }

  void ExpectRefused(const RopeArgs& args, const std::string& message) {
    const absl::Status status = Rope(ctx(), args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), message);
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, RopeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

TEST_P(RopeTest, MatchesTheFormula) {
  for (const RopeCase& c : kRopeAwkward) ExpectRight(c);
  for (const RopeCase& c : kRopeServed) ExpectRight(c);
}

TEST_P(RopeTest, MatchesTheFormulaAtAMillion) { ExpectRight({"far", 200, 2, 128}, 1048576); }

TEST_P(RopeTest, PositionZeroChangesNothing) {
  Operands o(device(), {"", 4, 3, 32}, 4, 0);
  const std::vector<uint8_t> before = o.x.GetBytes();
  ASSERT_TRUE(Rope(ctx(), o.Args()).ok());
  EXPECT_EQ(o.x.GetBytes(), before);
}

// Query and key heads of a qkv row in one call, the value heads untouched.
TEST_P(RopeTest, TakesAPartOfAWiderRow) {
  constexpr int64_t kTokens = 6, kDim = 16;
  Operands qkv(device(), {"", kTokens, 5, kDim}, 5);
  const std::vector<double> before = qkv.x.Get();
  const std::vector<double> rotated = qkv.Oracle();
  RopeArgs args = qkv.Args();
  args.x.dims[1] = 3;
  ASSERT_TRUE(Rope(ctx(), args).ok());
  std::vector<double> want = before;
  for (size_t i = 0; i < want.size(); ++i) {
    if (i / kDim % 5 < 3) want[i] = rotated[i];
  }
  EXPECT_TRUE(AllClose(qkv.x.Get(), want, ToleranceOf(DType::kF32)));
}

TEST_P(RopeTest, NaNStaysInItsPair) {
  Operands o(device(), {"", 2, 1, 32}, 6);
  std::vector<double> x = o.x.Get();
  x[32 + 5] = std::numeric_limits<double>::quiet_NaN();
  o.x.Set(x);
  ASSERT_TRUE(Rope(ctx(), o.Args()).ok());
  const std::vector<double> got = o.x.Get();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(std::isnan(got[i]), i == 32 + 5 || i == 32 + 21) << i;
  }
}

TEST_P(RopeTest, TwoRunsAgreeBitForBitOnAnyNumberOfThreads) {
  DeviceUnderTest other = GetParam();
  other.threads = other.threads == 1 ? 2 : 1;
  OpTestBed bed(other);
  const RopeCase& c = kRopeServed[1];
  Operands first(device(), c, 7), second(device(), c, 7), third(bed.device(), c, 7);
  ASSERT_TRUE(Rope(ctx(), first.Args()).ok());
  ASSERT_TRUE(Rope(ctx(), second.Args()).ok());
  ASSERT_TRUE(Rope(bed.ctx(), third.Args()).ok());
  EXPECT_EQ(first.x.GetBytes(), second.x.GetBytes());
  EXPECT_EQ(first.x.GetBytes(), third.x.GetBytes());
}

TEST_P(RopeTest, RefusesWhatDoesNotFit) {
  Operands o(device(), {"", 4, 3, 32}, 8);
  GuardedTensor odd(device(), DType::kF32, {4, 3, 31}), wide(device(), DType::kF32, {4, 1, 514});
  GuardedTensor fifteen(device(), DType::kF32, {15}), many(device(), DType::kF32, {257});
  RopeArgs args = o.Args();
  args.positions.dims[0] = 3;
  ExpectRefused(args, "Rope: positions.dim(0) = 3, want 4");
  args = o.Args();
  args.positions.dtype = DType::kI64;
  ExpectRefused(args, "Rope: positions has dtype int64, want int32");
  args = o.Args();
  args.inv_freq = fifteen.view();
  ExpectRefused(args, "Rope: inv_freq.dim(0) = 15, want 16");
  args.x = odd.view();
  ExpectRefused(args, "Rope: x.dim(2) must be even and at most 512");
  args = o.Args();
  args.x = wide.view();
  args.inv_freq = many.view();
  ExpectRefused(args, "Rope: x.dim(2) must be even and at most 512");
  args = o.Args();
  args.x.dtype = DType::kI32;
  ExpectRefused(args, "Rope: x has dtype int32, want float32 or bfloat16");
  args = o.Args();
  args.x.rank = 2;
  ExpectRefused(args, "Rope: x has rank 2, want 3");
}

TEST(RopeFrequenciesTest, DefaultIsTheGeometricSeries) {
  const auto got = RopeFrequencies({.dim = 64, .theta = 100000});
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->size(), 32u);
  for (size_t i = 0; i < 32; ++i) {
    const double want = std::pow(1e5, -2.0 * static_cast<double>(i) / 64);
    EXPECT_NEAR((*got)[i], want, want * 3e-7);
  }
  EXPECT_EQ((*got)[0], 1.0f);
}

TEST(RopeFrequenciesTest, LinearDividesByTheFactor) {
  const auto plain = RopeFrequencies({.dim = 128});
  const auto got = RopeFrequencies({.type = RopeType::kLinear, .dim = 128, .factor = 4});
  ASSERT_TRUE(got.ok());
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ((*got)[i], (*plain)[i] / 4);
}

TEST(RopeFrequenciesTest, Llama3KeepsHighDividesLowAndBlendsBetween) {
  const RopeFrequencyParams params{.type = RopeType::kLlama3,
                                   .dim = 128,
                                   .theta = 500000,
                                   .factor = 8,
                                   .low_freq_factor = 1,
                                   .high_freq_factor = 4,
                                   .original_max_position = 8192};
  const auto got = RopeFrequencies(params);
  ASSERT_TRUE(got.ok());
  int kept = 0, divided = 0, blended = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double f = std::pow(5e5, -2.0 * static_cast<double>(i) / 128);
    const double wavelength = 2 * M_PI / f;
    double want = f;
    if (wavelength > 8192.0) {
      want = f / 8;
      ++divided;
    } else if (wavelength >= 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1) / 3;
      want = (1 - smooth) * f / 8 + smooth * f;
      ++blended;
    } else {
      ++kept;
    }
    EXPECT_NEAR((*got)[i], want, want * 1e-6) << i;
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(blended, 6);
  EXPECT_EQ(divided, 29);
}

TEST(RopeFrequenciesTest, Llama3ParametersMatter) {
  const RopeFrequencyParams base{.type = RopeType::kLlama3,
                                 .dim = 64,
                                 .theta = 500000,
                                 .factor = 8,
                                 .low_freq_factor = 1,
                                 .high_freq_factor = 4,
                                 .original_max_position = 8192};
  const auto want = *RopeFrequencies(base);
  RopeFrequencyParams p = base;
  p.factor = 32;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.low_freq_factor = 2;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.high_freq_factor = 8;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.original_max_position = 4096;
  EXPECT_NE(*RopeFrequencies(p), want);
}

TEST(RopeFrequenciesTest, YarnKeepsHighDividesLowAndBlendsBetween) {
  // DeepSeek-V4: pairs up to 15 keep their frequency, from 25 on it is divided.
  const RopeFrequencyParams params{.type = RopeType::kYarn,
                                   .dim = 64,
                                   .theta = 160000,
                                   .factor = 16,
                                   .original_max_position = 65536};
  const auto got = RopeFrequencies(params);
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->size(), 32u);
  for (size_t i = 0; i < 32; ++i) {
    const double f = std::pow(1.6e5, -2.0 * static_cast<double>(i) / 64);
    const double divided = std::clamp((static_cast<double>(i) - 15) / 10, 0.0, 1.0);
    const double want = f / 16 * divided + f * (1 - divided);
    EXPECT_NEAR((*got)[i], want, want * 1e-6) << i;
  }
}

TEST(RopeFrequenciesTest, YarnInAShortContextIsAStep) {
  // Both ends of the ramp at pair 0: all but that are divided.
  const auto got = RopeFrequencies(
      {.type = RopeType::kYarn, .dim = 8, .theta = 10000, .factor = 4, .original_max_position = 3});
  ASSERT_TRUE(got.ok());
  for (size_t i = 0; i < 4; ++i) {
    const double f = std::pow(1e4, -2.0 * static_cast<double>(i) / 8);
    EXPECT_NEAR((*got)[i], i == 0 ? f : f / 4, f * 1e-6) << i;
  }
}

TEST(RopeFrequenciesTest, YarnParametersMatter) {
  const RopeFrequencyParams base{.type = RopeType::kYarn,
                                 .dim = 64,
                                 .theta = 160000,
                                 .factor = 16,
                                 .original_max_position = 65536};
  const auto want = *RopeFrequencies(base);
  RopeFrequencyParams p = base;
  p.factor = 8;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.original_max_position = 4096;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.beta_fast = 64;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.beta_slow = 2;
  EXPECT_NE(*RopeFrequencies(p), want);
  p = base;
  p.theta = 10000;
  EXPECT_NE(*RopeFrequencies(p), want);
}

TEST(RopeFrequenciesTest, RefusesWhatIsOutOfRange) {
  const auto message = [](RopeFrequencyParams p) {
    return std::string(RopeFrequencies(p).status().message());
  };
  EXPECT_EQ(message({.dim = 7}), "RopeFrequencies: dim = 7, want an even number from 2 to 512");
  EXPECT_EQ(message({.dim = 0}), "RopeFrequencies: dim = 0, want an even number from 2 to 512");
  EXPECT_EQ(message({.dim = 8, .theta = 0}), "RopeFrequencies: theta = 0, want above 0");
  EXPECT_EQ(message({.type = RopeType::kLinear, .dim = 8, .factor = -1}),
            "RopeFrequencies: factor = -1, want above 0");
  EXPECT_EQ(message({.type = RopeType::kLlama3, .dim = 8, .low_freq_factor = 0}),
            "RopeFrequencies: low_freq_factor = 0, want above 0");
  EXPECT_EQ(message({.type = RopeType::kLlama3, .dim = 8, .low_freq_factor = 4}),
            "RopeFrequencies: high_freq_factor = 4, want above low_freq_factor");
  EXPECT_EQ(message({.type = RopeType::kLlama3, .dim = 8, .original_max_position = 0}),
            "RopeFrequencies: original_max_position = 0, want above 0");
  EXPECT_EQ(message({.type = RopeType::kYarn, .dim = 8, .original_max_position = 0}),
            "RopeFrequencies: original_max_position = 0, want above 0");
  EXPECT_EQ(message({.type = RopeType::kYarn, .dim = 8, .theta = 1}),
            "RopeFrequencies: theta = 1, want above 1");
  EXPECT_EQ(message({.type = RopeType::kYarn, .dim = 8, .beta_slow = 0}),
            "RopeFrequencies: beta_slow = 0, want above 0");
  EXPECT_EQ(message({.type = RopeType::kYarn, .dim = 8, .beta_fast = 1, .beta_slow = 1}),
            "RopeFrequencies: beta_fast = 1, want above beta_slow");
}

}  // namespace
}  // namespace millrace
