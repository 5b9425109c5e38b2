#include "kernels/quantize/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
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

// A format's largest number and finite magnitudes, in the order of their codes.
struct Format {
  QuantizeFormat format;
  double max;
  int codes;  // of finite numbers that are not negative
  const std::array<float, 256>& values;
};
constexpr Format kFormats[] = {{QuantizeFormat::kE4M3, 448, 0x7f, kE4M3Values},
                               {QuantizeFormat::kE5M2, 57344, 0x7c, kE5M2Values}};

// The definition: the nearest of all codes, the even one of two.
double ExpectedCode(double value, const Format& format) {
  if (std::isnan(value)) return 0x7f;
  const double magnitude = std::min(std::abs(value), format.max);
  // Values ascend with the codes: the first one not below, or the one before it.
  const auto end = format.values.begin() + format.codes;
  const auto above = static_cast<int>(std::lower_bound(format.values.begin(), end, magnitude) -
                                      format.values.begin());
  int best = std::min(above, format.codes - 1);
  if (best > 0) {
    const double up = format.values[static_cast<size_t>(best)] - magnitude;
    const double down = magnitude - format.values[static_cast<size_t>(best) - 1];
    if (down < up || (down == up && best % 2 == 1)) --best;
  }
  return std::signbit(value) ? best + 128 : best;
}

double ExpectedScale(double amax, QuantizeScale rounding, const Format& format) {
  amax = std::min(amax, static_cast<double>(std::numeric_limits<float>::max()));
  double scale = static_cast<double>(static_cast<float>(amax / format.max));
  if (rounding == QuantizeScale::kPowerOfTwo) {
    scale = 0x1p-126;
    while (scale < amax / format.max) scale *= 2;
  }
  return std::max(scale, 0x1p-126);
}

// What is done to x of these sizes.
struct Job {
  int64_t tokens, size;
  QuantizeUnit unit;
  QuantizeScale rounding = QuantizeScale::kF32;
  const Format* format = &kFormats[0];
  bool transposed = false;

  std::vector<int64_t> CodesShape() const {
    return transposed ? std::vector<int64_t>{size, tokens} : std::vector<int64_t>{tokens, size};
  }
  std::vector<int64_t> ScaleShape() const {
    const std::vector<int64_t> codes = CodesShape();
    if (unit == QuantizeUnit::kGroup) return {(codes[1] + 127) / 128, codes[0]};
    if (unit == QuantizeUnit::kTensor) return {1};
    return {unit == QuantizeUnit::kToken ? tokens : size};
  }
  size_t units() const {
    const std::vector<int64_t> shape = ScaleShape();
    return static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1));
  }
  // Where the scale and the code of an element are.
  size_t UnitOf(int64_t token, int64_t i) const {
    if (unit == QuantizeUnit::kTensor) return 0;
    if (unit != QuantizeUnit::kGroup) {
      return static_cast<size_t>(unit == QuantizeUnit::kToken ? token : i);
    }
    return static_cast<size_t>(transposed ? token / 128 * size + i : i / 128 * tokens + token);
  }
  size_t CodeOf(int64_t token, int64_t i) const {
    return static_cast<size_t>(transposed ? i * tokens + token : token * size + i);
  }
  std::string ToString() const {
    return std::to_string(tokens) + " x " + std::to_string(size) + " unit " +
           std::to_string(static_cast<int>(unit)) + " rounding " +
           std::to_string(static_cast<int>(rounding)) + (transposed ? " transposed" : "") +
           " max " + std::to_string(format->max);
  }
};

struct Expected {
  Values codes, scale;
};
// `given`: the scale where it is.
Expected Oracle(const Values& x, const Job& job, double given) {
  Expected e = {Values(x.size()), Values(job.units())};
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t at = 0; at < x.size(); ++at) {
      const auto t = static_cast<int64_t>(at) / job.size, i = static_cast<int64_t>(at) % job.size;
      double& scale = e.scale[job.UnitOf(t, i)];
      if (pass == 0 && std::abs(x[at]) > scale) scale = std::abs(x[at]);
      const float inverse = 1.0f / static_cast<float>(scale);
      if (pass == 1) {
        e.codes[job.CodeOf(t, i)] = ExpectedCode(static_cast<float>(x[at]) * inverse, *job.format);
      }
    }
    if (pass == 1) break;
    for (double& scale : e.scale) {
      scale = job.rounding == QuantizeScale::kGiven
                  ? given
                  : ExpectedScale(scale, job.rounding, *job.format);
    }
  }
  return e;
}

struct Tensors {
  Tensors(Device& device, DType dtype, const Job& j, int64_t padding)
      : x(device, dtype, {j.tokens, j.size}, padding),
        codes(device, DType::kU8, j.CodesShape(), padding),
        scale(device, DType::kF32, j.ScaleShape(), j.unit == QuantizeUnit::kGroup ? padding : 0),
        job(j) {}

  QuantizeArgs Args() const {
    return {.x = x.view(),
            .codes = codes.view(),
            .scale = scale.view(),
            .unit = job.unit,
            .rounding = job.rounding,
            .format = job.format->format,
            .transposed = job.transposed};
  }

  GuardedTensor x, codes, scale;
  Job job;
};

class QuantizeTest : public OpTest {
 protected:
  // Runs on the values that x has, and compares bit for bit.
  void Check(const Tensors& t) {
    const double given = t.job.rounding == QuantizeScale::kGiven ? t.scale.Get()[0] : 0;
    ASSERT_EQ(Quantize(ctx(), t.Args()), absl::OkStatus());
    const Expected e = Oracle(t.x.Get(), t.job, given);
    EXPECT_EQ(t.scale.Get(), e.scale);
    EXPECT_EQ(t.codes.Get(), e.codes);
    EXPECT_TRUE(t.x.GuardsIntact());
    EXPECT_TRUE(t.codes.GuardsIntact());
    EXPECT_TRUE(t.scale.GuardsIntact());
  }
  // With these values.
  void Check(DType dtype, const Job& job, const Values& x) {
    SCOPED_TRACE(job.ToString());
    Tensors t(device(), dtype, job, 0);
    t.x.Set(x);
    Check(t);
  }
};

constexpr QuantizeUnit kUnits[] = {QuantizeUnit::kGroup, QuantizeUnit::kToken,
                                   QuantizeUnit::kChannel, QuantizeUnit::kTensor};
constexpr QuantizeScale kRoundings[] = {QuantizeScale::kF32, QuantizeScale::kPowerOfTwo};

// Every unit of x, plain and transposed.
std::vector<Job> Jobs(int64_t tokens, int64_t size) {
  std::vector<Job> jobs;
  for (QuantizeUnit unit : kUnits) {
    jobs.push_back({.tokens = tokens, .size = size, .unit = unit});
    if (unit == QuantizeUnit::kToken) continue;
    jobs.push_back({.tokens = tokens, .size = size, .unit = unit, .transposed = true});
  }
  return jobs;
}

TEST_P(QuantizeTest, AgreesWithTheDefinition) {
  for (const QuantizeCase& c : kQuantizeCases) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (Job job : Jobs(c.tokens, c.size)) {
        for (QuantizeScale rounding : kRoundings) {
          for (const Format& format : kFormats) {
            job.rounding = rounding;
            job.format = &format;
            SCOPED_TRACE(job.ToString());
            Tensors t(device(), dtype, job, c.row_padding);
            TestRng rng(static_cast<uint64_t>(c.tokens * 31 + c.size));
            t.x.SetNormal(rng, 3);
            Check(t);
          }
        }
      }
    }
  }
}

TEST_P(QuantizeTest, TakesAGivenScale) {
  for (const Format& format : kFormats) {
    for (bool transposed : {false, true}) {
      for (double scale : {0.01, 3.0, 0.0, 0x1p-149}) {
        const Job job = {.tokens = 37,
                         .size = 200,
                         .unit = QuantizeUnit::kTensor,
                         .rounding = QuantizeScale::kGiven,
                         .format = &format,
                         .transposed = transposed};
        SCOPED_TRACE(job.ToString());
        Tensors t(device(), DType::kBF16, job, 0);
        TestRng rng(5);
        t.x.SetNormal(rng, 3);
        t.scale.SetAll(scale);
        Check(t);
      }
    }
  }
}

// Every bf16 there is, each 128 neighbours with a scale of their own, and turned.
TEST_P(QuantizeTest, TakesAllBf16) {
  Values x, turned(65536);
  for (int bits = 0; bits < 65536; ++bits) {
    x.push_back(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
    turned[static_cast<size_t>(bits % 128 * 512 + bits / 128)] = x.back();
  }
  for (QuantizeScale rounding : kRoundings) {
    for (const Format& format : kFormats) {
      Job job = {.tokens = 512,
                 .size = 128,
                 .unit = QuantizeUnit::kGroup,
                 .rounding = rounding,
                 .format = &format};
      Check(DType::kBF16, job, x);
      job.tokens = 128;
      job.size = 512;
      job.transposed = true;
      Check(DType::kBF16, job, turned);
      job.unit = QuantizeUnit::kChannel;
      Check(DType::kBF16, job, turned);
    }
  }
}

// Every bf16 there is, under a scale of one: the codes are those of the format.
TEST_P(QuantizeTest, RoundsAllBf16ToNearestEven) {
  Values x;
  for (int bits = 0; bits < 65536; ++bits) {
    x.push_back(ToFloat(BFloat16{static_cast<uint16_t>(bits)}));
  }
  for (const Format& format : kFormats) {
    for (bool transposed : {false, true}) {
      const Job job = {.tokens = 256,
                       .size = 256,
                       .unit = QuantizeUnit::kTensor,
                       .rounding = QuantizeScale::kGiven,
                       .format = &format,
                       .transposed = transposed};
      Tensors t(device(), DType::kBF16, job, 0);
      t.x.Set(x);
      t.scale.SetAll(1);
      ASSERT_TRUE(Quantize(ctx(), t.Args()).ok());
      EXPECT_EQ(t.scale.Get(), Values{1});
      const Values codes = t.codes.Get();
      for (int64_t i = 0; i < 65536; ++i) {
        const double value = x[static_cast<size_t>(i)];
        const double code = codes[job.CodeOf(i / 256, i % 256)];
        ASSERT_EQ(code, ExpectedCode(value, format)) << value;
        const bool e5m2 = format.format == QuantizeFormat::kE5M2;
        const uint8_t encoded = e5m2 ? EncodeE5M2(value) : EncodeE4M3(value);
        ASSERT_EQ(code, std::isnan(value) ? 0x7f : encoded) << value;
      }
    }
  }
}

TEST_P(QuantizeTest, ScalesThatArePowersOfTwoRoundUp) {
  for (const Format& format : kFormats) {
    const Job job = {.tokens = 6,
                     .size = 1,
                     .unit = QuantizeUnit::kToken,
                     .rounding = QuantizeScale::kPowerOfTwo,
                     .format = &format};
    Tensors t(device(), DType::kF32, job, 0);
    const auto max = static_cast<float>(format.max);
    t.x.Set(
        {max, std::nextafter(max, 1e6f), std::nextafter(max, 0.0f), max / 2, -max - 2, max / 448});
    ASSERT_TRUE(Quantize(ctx(), t.Args()).ok());
    EXPECT_EQ(t.scale.Get(), (Values{1, 2, 1, 0.5, 2, 1.0 / 256}));
  }
}

TEST_P(QuantizeTest, DefinesZerosInfinitiesAndNan) {
  for (const Format& format : kFormats) {
    for (QuantizeScale rounding : kRoundings) {
      const Job job = {.tokens = 4,
                       .size = 4,
                       .unit = QuantizeUnit::kToken,
                       .rounding = rounding,
                       .format = &format};
      Tensors t(device(), DType::kF32, job, 0);
      t.x.Set(
          {0, -0.0, 0, 0, kNan, -kNan, 2, -2, kInfinity, -kInfinity, 1, kNan, kNan, kNan, kNan, 0});
      Check(t);
      EXPECT_EQ(t.scale.Get()[0], 0x1p-126);
      const Values codes = t.codes.Get();
      const double max = ExpectedCode(format.max, format);
      const double two = rounding == QuantizeScale::kF32 ? max : ExpectedCode(256, format);
      if (format.format == QuantizeFormat::kE4M3) {
        EXPECT_EQ(Values(codes.begin(), codes.begin() + 8),
                  (Values{0, 0x80, 0, 0, 0x7f, 0x7f, two, two + 0x80}));
      }
      EXPECT_EQ(codes[11], 0x7f);
      // Of the largest float's unit, an infinity is past the format's largest number.
      EXPECT_EQ(codes[8], max);
      EXPECT_EQ(codes[9], max + 0x80);
    }
  }
}

TEST_P(QuantizeTest, SmallestFloats) {
  for (const Format& format : kFormats) {
    for (QuantizeScale rounding : kRoundings) {
      Job job = {.tokens = 3,
                 .size = 3,
                 .unit = QuantizeUnit::kToken,
                 .rounding = rounding,
                 .format = &format};
      const Values x = {0x1p-149,  -0x1p-140, 0,          0x1p-126, 0x1p-130,
                        -0x1p-118, 0x1p-117,  0x1.cp-118, 0x1p-120};
      Check(DType::kF32, job, x);
      job.unit = QuantizeUnit::kChannel;
      Check(DType::kF32, job, x);
    }
  }
}

// No tokens: channels and tensors have the scale of zeros.
TEST_P(QuantizeTest, EmptyCalls) {
  for (const Job& job : Jobs(0, 5)) {
    SCOPED_TRACE(job.ToString());
    Check(Tensors(device(), DType::kF32, job, 0));
  }
  for (const Job& job : Jobs(5, 0)) {
    SCOPED_TRACE(job.ToString());
    Check(Tensors(device(), DType::kF32, job, 0));
  }
}

TEST_P(QuantizeTest, RefusesWhatDoesNotFit) {
  const Job job = {.tokens = 3, .size = 130, .unit = QuantizeUnit::kGroup};
  const Tensors t(device(), DType::kF32, job, 0);
  QuantizeArgs args = t.Args();
  args.codes = args.codes.Cols(0, 129);
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: codes.dim(1) = 129, want 130");
  args = t.Args();
  args.scale = args.scale.Rows(0, 1);
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: scale.dim(0) = 1, want 2");
  args = t.Args();
  args.unit = QuantizeUnit::kToken;
  EXPECT_EQ(Quantize(ctx(), args).code(), absl::StatusCode::kInvalidArgument);
  args = t.Args();
  args.transposed = true;
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: codes.dim(0) = 3, want 130");
  args = t.Args();
  args.rounding = QuantizeScale::kGiven;
  EXPECT_EQ(Quantize(ctx(), args).message(), "Quantize: a given scale must be the tensor's");
  const Tensors turned(device(), DType::kF32,
                       {.tokens = 3, .size = 130, .unit = QuantizeUnit::kGroup, .transposed = true},
                       0);
  args = turned.Args();
  args.unit = QuantizeUnit::kToken;
  EXPECT_EQ(Quantize(ctx(), args).message(),
            "Quantize: transposed codes cannot have a scale of each token");
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
