#include "kernels/swiglu/swiglu.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/swiglu/swiglu_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// bf16: one rounding of 2^-9; f32: a few ulp of exp and division.
Tolerance ToleranceOf(DType dtype) {
  return dtype == DType::kBF16 ? Tolerance{1e-30, 1.0 / 256} : Tolerance{1e-30, 1e-6};
}

double Silu(double g) { return g / (1 + std::exp(-g)); }

double Clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

std::vector<double> Expected(const std::vector<double>& x, const SwigluCase& c) {
  const int64_t block = c.block == 0 ? c.size : c.block;
  std::vector<double> y;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < c.size; ++i) {
      const double* gate = x.data() + t * 2 * c.size + i / block * 2 * block + i % block;
      const double limit = c.limit > 0 ? static_cast<double>(c.limit) : kInf;
      y.push_back(Silu(Clamped(gate[0], -kInf, limit)) * Clamped(gate[block], -limit, limit));
    }
  }
  return y;
}

class SwigluTest : public OpTest {};

TEST_P(SwigluTest, MatchesTheFormula) {
  for (const SwigluCase& c : kSwigluCases) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(testing::Message()
                   << c.tokens << "x" << c.size << " in " << c.block << " " << DTypeName(dtype));
      TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.size));
      GuardedTensor x(device(), dtype, {c.tokens, 2 * c.size}, c.row_padding);
      GuardedTensor y(device(), dtype, {c.tokens, c.size}, c.row_padding);
      x.SetNormal(rng, 3.0);
      ASSERT_TRUE(
          Swiglu(ctx(), {.x = x.view(), .y = y.view(), .block = c.block, .limit = c.limit}).ok());
      EXPECT_TRUE(AllClose(y.Get(), Expected(x.Get(), c), ToleranceOf(dtype)));
      EXPECT_TRUE(x.GuardsIntact());
      EXPECT_TRUE(y.GuardsIntact());
    }
  }
}

TEST_P(SwigluTest, LargeSmallAndSpecialGates) {
  const std::vector<double> gates = {-1000, -88, -20, -1e-20, 0, 1e-20, 20, 88, 1000, kNan, kInf};
  const auto n = static_cast<int64_t>(gates.size());
  std::vector<double> values = gates;
  values.insert(values.end(), gates.size(), 2.0);
  GuardedTensor x(device(), DType::kF32, {1, 2 * n});
  GuardedTensor y(device(), DType::kF32, {1, n});
  x.Set(values);
  ASSERT_TRUE(Swiglu(ctx(), {.x = x.view(), .y = y.view()}).ok());
  // Below exp's range the result is a zero of either sign.
  EXPECT_TRUE(AllClose(y.Get(), Expected(x.Get(), {1, n, 0}), {1e-35, 1e-6}));
}

// The gate has no lower bound, the up projection has both, and what lies inside is untouched.
TEST_P(SwigluTest, LimitClampsGateFromAboveAndUpOnBothSides) {
  const std::vector<double> gates = {-9, -3, 2.5, 9, kInf, 1, 1, 1, 1, kNan, 1};
  const std::vector<double> ups = {1, 1, 1, 1, 1, 9, -9, 2.5, kInf, 1, kNan};
  const auto n = static_cast<int64_t>(gates.size());
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    GuardedTensor x(device(), dtype, {1, 2 * n});
    GuardedTensor y(device(), dtype, {1, n});
    std::vector<double> values = gates;
    values.insert(values.end(), ups.begin(), ups.end());
    x.Set(values);
    ASSERT_TRUE(Swiglu(ctx(), {.x = x.view(), .y = y.view(), .limit = 3}).ok());
    const std::vector<double> want = {Silu(-9),    Silu(-3),    Silu(2.5),    Silu(3),
                                      Silu(3),     Silu(1) * 3, -3 * Silu(1), Silu(1) * 2.5,
                                      Silu(1) * 3, kNan,        kNan};
    EXPECT_TRUE(AllClose(y.Get(), want, ToleranceOf(dtype)));
  }
}

TEST_P(SwigluTest, AnElementDoesNotDependOnItsPlace) {
  GuardedTensor x(device(), DType::kF32, {1, 2 * 37});
  GuardedTensor y(device(), DType::kF32, {1, 37});
  x.SetAll(1.2345);
  ASSERT_TRUE(Swiglu(ctx(), {.x = x.view(), .y = y.view()}).ok());
  for (double v : y.Get()) EXPECT_EQ(v, y.Get()[0]);
}

TEST_P(SwigluTest, TwoRunsAgreeBitForBit) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    TestRng rng(11);
    GuardedTensor x(device(), dtype, {37, 2 * 1000});
    GuardedTensor first(device(), dtype, {37, 1000}), second(device(), dtype, {37, 1000});
    x.SetNormal(rng, 3.0);
    ASSERT_TRUE(Swiglu(ctx(), {.x = x.view(), .y = first.view(), .block = 8}).ok());
    ASSERT_TRUE(Swiglu(ctx(), {.x = x.view(), .y = second.view(), .block = 8}).ok());
    EXPECT_EQ(first.GetBytes(), second.GetBytes());
  }
}

TEST_P(SwigluTest, RefusesWhatDoesNotFit) {
  GuardedTensor x(device(), DType::kF32, {2, 8});
  GuardedTensor y(device(), DType::kF32, {2, 3});
  EXPECT_EQ(Swiglu(ctx(), {.x = x.view(), .y = y.view()}).message(),
            "Swiglu: y.dim(1) = 3, want 4");
  GuardedTensor odd(device(), DType::kF32, {2, 7});
  EXPECT_EQ(Swiglu(ctx(), {.x = odd.view(), .y = y.view()}).message(),
            "Swiglu: x.dim(1) must be even");
  GuardedTensor bf16(device(), DType::kBF16, {2, 4});
  EXPECT_EQ(Swiglu(ctx(), {.x = x.view(), .y = bf16.view()}).message(),
            "Swiglu: y has dtype bfloat16, want float32");
  GuardedTensor good(device(), DType::kF32, {2, 4});
  for (int64_t block : {-1, 3, 8}) {
    EXPECT_EQ(Swiglu(ctx(), {.x = x.view(), .y = good.view(), .block = block}).message(),
              "Swiglu: block must divide the number of outputs");
  }
  EXPECT_EQ(Swiglu(ctx(), {.x = x.view(), .y = good.view(), .limit = -1}).message(),
            "Swiglu: limit must not be negative");
}

INSTANTIATE_TEST_SUITE_P(Devices, SwigluTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
