#include "kernels/stored_linear/stored_linear.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/stored_linear/stored_linear_cases.h"
#include "kernels/stored_matrix/random_stored_matrix.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

struct Sums {
  Values value;      // the formula
  Values magnitude;  // the sum of the products' absolute values
};

Sums Expected(const Values& x, const RandomStoredMatrix& weight) {
  const int64_t inputs = weight.view().cols, outputs = weight.view().rows;
  const int64_t tokens = inputs == 0 ? 0 : static_cast<int64_t>(x.size()) / inputs;
  Sums sums;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        const double product = x[static_cast<size_t>(t * inputs + k)] * weight.At(0, n, k);
        sum += product;
        magnitude += std::abs(product);
      }
      sums.value.push_back(sum);
      sums.magnitude.push_back(magnitude);
    }
  }
  return sums;
}

// An f32 sum loses at most 2^-24 of the magnitude with each addition of its chain, in practice far
// less; a missing product or a wrong scale is far more. A bf16 result loses another 2^-9 of itself.
void ExpectClose(const Values& actual, const Sums& expected, DType y) {
  ASSERT_EQ(actual.size(), expected.value.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double rounding = y == DType::kBF16 ? std::abs(expected.value[i]) / 256 : 0;
    ASSERT_NEAR(actual[i], expected.value[i], 1e-6 * expected.magnitude[i] + rounding + 1e-30) << i;
  }
}

// What kFp8Per128 says, by searching the values of E4M3.
Values Rounded(Values x, int64_t width) {
  Values codes;
  for (int exponent = 0; exponent < 16; ++exponent) {
    for (int mantissa = 0; mantissa < 8; ++mantissa) {
      if (exponent == 15 && mantissa == 7) continue;
      codes.push_back(exponent == 0 ? std::ldexp(mantissa, -9)
                                    : std::ldexp(8 + mantissa, exponent - 10));
    }
  }
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(width)) {
    for (int64_t begin = 0; begin < width; begin += 128) {
      double* const block = x.data() + row + begin;
      const int64_t count = std::min<int64_t>(128, width - begin);
      double amax = static_cast<double>(1e-4f);
      for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::abs(block[i]));
      const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
      for (int64_t i = 0; i < count; ++i) {
        const double wanted = std::abs(block[i]) / scale;
        size_t best = 0;  // an even code wins a tie
        for (size_t c = 1; c < codes.size(); ++c) {
          const double a = std::abs(codes[c] - wanted), b = std::abs(codes[best] - wanted);
          if (a < b || (a == b && c % 2 == 0)) best = c;
        }
        block[i] = std::copysign(codes[best] * scale, block[i]);
      }
    }
  }
  return x;
}

class StoredLinearTest : public OpTest {
 protected:
  void CheckIndependence(const StoredKind& kind, int64_t inputs, ActivationRounding rounding) {
    TestRng rng(5);
    const RandomStoredMatrix weight(device(), rng, kind, {.rows = 150, .cols = inputs});
    GuardedTensor x(device(), DType::kF32, {700, inputs}), all(device(), DType::kF32, {700, 150});
    GuardedTensor some(device(), DType::kF32, {700, 150}), cut(device(), DType::kF32, {700, 150});
    x.SetNormal(rng);
    ASSERT_TRUE(
        StoredLinear(
            ctx(), {.x = x.view(), .weight = weight.view(), .y = all.view(), .rounding = rounding})
            .ok());
    for (int64_t begin = 0, size = 1; begin < 700; begin += size, size += 1 + size / 4) {
      const int64_t end = std::min<int64_t>(begin + size, 700);
      ASSERT_TRUE(StoredLinear(ctx(), {.x = x.view().Rows(begin, end),
                                       .weight = weight.view(),
                                       .y = some.view().Rows(begin, end),
                                       .rounding = rounding})
                      .ok());
    }
    EXPECT_EQ(all.GetBytes(), some.GetBytes()) << KindName(kind);
    for (const int64_t begin : {0, 1, 24, 127, 129}) {
      const int64_t end = begin == 0 ? 1 : begin == 1 ? 24 : begin == 24 ? 127 : begin + 2;
      const int64_t stop = begin == 129 ? 150 : end;
      ASSERT_TRUE(StoredLinear(ctx(), {.x = x.view(),
                                       .weight = weight.view().Rows(begin, stop),
                                       .y = cut.view().Cols(begin, stop),
                                       .rounding = rounding})
                      .ok());
    }
    EXPECT_EQ(all.GetBytes(), cut.GetBytes()) << KindName(kind);
  }

  void Check(const StoredLinearCase& c, const StoredKind& kind, DType x_type, DType y_type,
             ActivationRounding rounding = ActivationRounding::kNone) {
    SCOPED_TRACE(testing::Message() << c.tokens << " x " << c.inputs << " to " << c.outputs << " "
                                    << KindName(kind) << " " << DTypeName(x_type));
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.inputs * 31 + c.outputs));
    const RandomStoredMatrix weight(
        device(), rng, kind,
        {.rows = c.outputs, .cols = c.inputs, .tile_row = c.tile_row, .tile_col = c.tile_col});
    GuardedTensor x(device(), x_type, {c.tokens, c.inputs}, c.row_padding);
    GuardedTensor y(device(), y_type, {c.tokens, c.outputs}, c.row_padding);
    x.SetNormal(rng);
    const absl::Status status = StoredLinear(
        ctx(), {.x = x.view(), .weight = weight.view(), .y = y.view(), .rounding = rounding});
    ASSERT_TRUE(status.ok()) << status;
    if (c.inputs == 0) {
      EXPECT_EQ(y.Get(), Values(static_cast<size_t>(y.size()), 0.0));
    } else {
      const bool rounds = rounding == ActivationRounding::kFp8Per128;
      ExpectClose(y.Get(), Expected(rounds ? Rounded(x.Get(), c.inputs) : x.Get(), weight), y_type);
    }
    EXPECT_TRUE(x.GuardsIntact() && y.GuardsIntact());
  }
};

TEST_P(StoredLinearTest, MatchesTheFormulaInEveryFormat) {
  for (const StoredKind& kind : kStoredKinds) {
    for (const StoredLinearCase& c : kStoredLinearCases) Check(c, kind, DType::kF32, DType::kF32);
    if (StoredColumnUnit(kind.format) > 1) continue;
    for (const StoredLinearCase& c : kStoredLinearOddCases) {
      Check(c, kind, DType::kF32, DType::kF32);
    }
  }
}

TEST_P(StoredLinearTest, NvFp4HasItsOwnWidths) {
  for (int64_t inputs : {16, 48, 112, 144}) {
    Check({5, inputs, 7}, {StoredFormat::kNvFp4}, DType::kF32, DType::kF32);
  }
}

TEST_P(StoredLinearTest, EachDtypeOfActivations) {
  for (const StoredKind& kind : kStoredKinds) {
    for (DType x : {DType::kF32, DType::kBF16}) {
      for (DType y : {DType::kF32, DType::kBF16}) Check({4, 160, 13, 1}, kind, x, y);
    }
  }
}

TEST_P(StoredLinearTest, ServingShapes) {
  for (const StoredKind& kind : kStoredKinds) {
    for (const StoredLinearCase& c : kStoredLinearServingCases) {
      Check(c, kind, DType::kF32, DType::kF32);
    }
  }
}

TEST_P(StoredLinearTest, RoundsActivationsToFp8) {
  for (int64_t inputs : {32, 128, 288}) {
    TestRng rng(static_cast<uint64_t>(inputs));
    const RandomStoredMatrix weight(device(), rng, {StoredFormat::kMxFp4},
                                    {.rows = 9, .cols = inputs});
    GuardedTensor x(device(), DType::kF32, {6, inputs}), y(device(), DType::kF32, {6, 9});
    Values values;
    for (int64_t t = 0; t < 6; ++t) {
      // Scales from far below the smallest (1e-4) up; exact powers of two and ties among them.
      for (int64_t i = 0; i < inputs; ++i) {
        const double tie = (i % 9 == 0) ? 1.0625 : (i % 7 == 0 ? 448 : rng.Normal());
        values.push_back(tie * std::exp2(static_cast<double>(12 * t - 40)));
      }
    }
    x.Set(values);
    ASSERT_TRUE(StoredLinear(ctx(), {.x = x.view(),
                                     .weight = weight.view(),
                                     .y = y.view(),
                                     .rounding = ActivationRounding::kFp8Per128})
                    .ok());
    ExpectClose(y.Get(), Expected(Rounded(x.Get(), inputs), weight), DType::kF32);
  }
}

TEST_P(StoredLinearTest, TilesOfFewTokens) {
  for (const StoredKind& kind : kStoredKinds) {
    if (StoredColumnUnit(kind.format) > 1 || kind.format == StoredFormat::kF32) continue;
    for (const StoredLinearCase& c : kStoredLinearTileCases) {
      for (DType x : {DType::kF32, DType::kBF16}) {
        Check(c, kind, x, DType::kF32, ActivationRounding::kFp8Per128);
        if (!IsQuantised(kind.format)) Check(c, kind, x, DType::kF32);
      }
    }
    for (const StoredLinearCase& c : kStoredLinearTallCases) {
      Check(c, kind, DType::kF32, DType::kF32, ActivationRounding::kFp8Per128);
    }
    Check({7, 1024, 50, 8}, kind, DType::kBF16, DType::kBF16, ActivationRounding::kFp8Per128);
  }
}

TEST_P(StoredLinearTest, ATokenDoesNotDependOnTheOthersNorARowOnTheCut) {
  for (const StoredKind& kind : kStoredKinds) {
    CheckIndependence(kind, 160, ActivationRounding::kNone);
    CheckIndependence(
        kind, 256,
        IsQuantised(kind.format) ? ActivationRounding::kFp8Per128 : ActivationRounding::kNone);
  }
}

TEST_P(StoredLinearTest, NanStaysWhereItBelongs) {
  for (const StoredKind& kind : kStoredKinds) {
    TestRng rng(6);
    RandomStoredMatrix weight(device(), rng, kind, {.rows = 6, .cols = 128});
    weight.SetNan(0, 2, 127);
    GuardedTensor x(device(), DType::kF32, {5, 128}), y(device(), DType::kF32, {5, 6});
    x.SetNormal(rng);
    Values values = x.Get();
    values[3 * 128 + 127] = std::numeric_limits<double>::infinity();
    x.Set(values);
    ASSERT_TRUE(StoredLinear(ctx(), {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());
    const Values got = y.Get();
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(std::isnan(got[i]) || std::isinf(got[i]), i % 6 == 2 || i / 6 == 3)
          << KindName(kind) << " " << i;
    }
  }
}

TEST_P(StoredLinearTest, RefusesWhatDoesNotFit) {
  const bool cuda = device().type() == DeviceType::kCuda;
  const DeviceType elsewhere = cuda ? DeviceType::kCpu : DeviceType::kCuda;
  const std::string on = cuda ? " on cuda" : " on cpu";
  TestRng rng(7);
  const RandomStoredMatrix fp8(device(), rng, {StoredFormat::kFp8}, {.rows = 200, .cols = 96});
  const RandomStoredMatrix stack(device(), rng, {StoredFormat::kBF16},
                                 {.count = 2, .rows = 4, .cols = 96});
  const RandomStoredMatrix nvfp4(device(), rng, {StoredFormat::kNvFp4}, {.rows = 200, .cols = 96});
  GuardedTensor x(device(), DType::kF32, {2, 96}), y(device(), DType::kF32, {2, 200});
  const auto reason = [&](const StoredMatrix& weight, auto change) {
    StoredLinearArgs args = {.x = x.view(), .weight = weight, .y = y.view()};
    change(args);
    return std::string(StoredLinear(ctx(), args).message());
  };
  EXPECT_EQ(reason(fp8.view(), [](auto& a) { a.x = a.x.Cols(0, 95); }),
            "StoredLinear: x.dim(1) = 95, want 96");
  EXPECT_EQ(reason(fp8.view(), [](auto& a) { a.y = a.y.Cols(0, 199); }),
            "StoredLinear: y.dim(1) = 199, want 200");
  EXPECT_EQ(reason(stack.view(), [](auto& a) { a.y = a.y.Cols(0, 4); }),
            "StoredLinear: weight must be one matrix");
  EXPECT_EQ(
      reason(fp8.view(), [](auto& a) { a.weight.tile_row = 57; }),
      "StoredLinear: weight.scales is uint8[1, 2, 1]" + on + ", want dense uint8[1, 3, 1]" + on);
  EXPECT_EQ(reason(fp8.view(), [](auto& a) { a.weight.format = StoredFormat::kBF16; }),
            "StoredLinear: weight.values is uint8[1, 200, 96]" + on +
                ", want dense bfloat16[1, 200, 96]" + on);
  EXPECT_EQ(reason(nvfp4.view(), [](auto& a) { a.weight.factors.dims[0] = 2; }),
            "StoredLinear: weight.factors is float32[2]" + on + ", want float32[1]");
  EXPECT_EQ(reason(nvfp4.view(), [](auto& a) { a.weight.cols = 95; }),
            "StoredLinear: weight of format NVFP4 cannot have 1 matrices of 200 x 95 from (0, 0)");
  EXPECT_EQ(reason(fp8.view(), [&](auto& a) { a.weight.values.device = elsewhere; }),
            "StoredLinear: weight is not on the device of the call");
}

TEST_P(StoredLinearTest, NeedsTheWorkspaceItSays) {
  TestRng rng(8);
  const RandomStoredMatrix weight(device(), rng, {StoredFormat::kFp8}, {.rows = 9, .cols = 1300});
  for (int64_t tokens : {1, 700}) {
    GuardedTensor x(device(), DType::kF32, {tokens, 1300}), y(device(), DType::kF32, {tokens, 9});
    const int64_t bytes = StoredLinearWorkspaceBytes(device(), 1300);
    GuardedTensor memory(device(), DType::kU8, {bytes});
    Workspace enough(memory.view().data, bytes), small(memory.view().data, 1024);
    const StoredLinearArgs args = {.x = x.view(), .weight = weight.view(), .y = y.view()};
    EXPECT_TRUE(StoredLinear({device(), Stream{}, enough}, args).ok());
    EXPECT_TRUE(memory.GuardsIntact());
    EXPECT_EQ(StoredLinear({device(), Stream{}, small}, args).code(),
              absl::StatusCode::kResourceExhausted);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StoredLinearTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

// Bits must not depend on how many threads there are.
TEST(StoredLinearThreadsTest, AgreeBitForBit) {
  for (const StoredKind& kind : kStoredKinds) {
    std::vector<std::vector<uint8_t>> results;
    for (int threads : {1, 2, 3, 5}) {
      OpTestBed bed({.name = "cpu", .threads = threads, .isa = DetectIsa()});
      TestRng rng(9);
      const RandomStoredMatrix weight(bed.device(), rng, kind, {.rows = 190, .cols = 160});
      GuardedTensor x(bed.device(), DType::kF32, {40, 160}),
          y(bed.device(), DType::kF32, {40, 190});
      x.SetNormal(rng);
      ASSERT_TRUE(
          StoredLinear(bed.ctx(), {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok());
      results.push_back(y.GetBytes());
      EXPECT_EQ(results.back(), results.front()) << threads << " threads, " << KindName(kind);
    }
  }
}

}  // namespace
}  // namespace millrace
