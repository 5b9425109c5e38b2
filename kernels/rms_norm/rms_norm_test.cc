#include "kernels/rms_norm/rms_norm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/rms_norm/rms_norm_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One rounding to bf16 is 2^-9 relative; f32 sums over a row cost less than 1e-5.
Tolerance ToleranceOf(DType dtype) {
  return dtype == DType::kBF16 ? Tolerance{1e-6, 1.0 / 256} : Tolerance{1e-6, 2e-5};
}

std::vector<double> Expected(const std::vector<double>& h, const std::vector<double>& weight,
                             double eps) {
  const size_t size = weight.size();
  std::vector<double> y(h.size());
  for (size_t row = 0; row < h.size(); row += size) {
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += h[row + i] * h[row + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(size) + eps);
    for (size_t i = 0; i < size; ++i) y[row + i] = h[row + i] * scale * weight[i];
  }
  return y;
}

class RmsNormTest : public OpTest {
 protected:
  void Check(const RmsNormCase& c, DType x_dtype, DType w_dtype, bool with_residual, float eps) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.size << " residual " << with_residual
                                    << " x " << DTypeName(x_dtype) << " w " << DTypeName(w_dtype));
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.size));
    GuardedTensor x(device(), x_dtype, {c.tokens, c.size}, c.row_padding);
    GuardedTensor residual(device(), x_dtype, {c.tokens, c.size}, c.row_padding);
    GuardedTensor weight(device(), w_dtype, {c.size});
    GuardedTensor y(device(), x_dtype, {c.tokens, c.size}, c.row_padding);
    x.SetNormal(rng);
    residual.SetNormal(rng, 2.0);
    weight.SetUniform(rng, 0.5, 1.5);
    std::vector<double> h = x.Get();
    if (with_residual) {
      const std::vector<double> r = residual.Get();
      for (size_t i = 0; i < h.size(); ++i) h[i] += r[i];
    }
    RmsNormArgs args{.x = x.view(), .weight = weight.view(), .y = y.view(), .eps = eps};
    if (with_residual) args.residual = residual.view();
    ASSERT_TRUE(RmsNorm(ctx(), args).ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    if (with_residual) {
      EXPECT_TRUE(AllClose(residual.Get(), h, ToleranceOf(x_dtype)));
      h = residual.Get();  // the stored sum is what is normalised
    }
    EXPECT_TRUE(AllClose(y.Get(), Expected(h, weight.Get(), eps), ToleranceOf(x_dtype)));
    for (const GuardedTensor* t : {&x, &residual, &weight, &y}) EXPECT_TRUE(t->GuardsIntact());
  }

  absl::Status Refusal(RmsNormArgs args) { return RmsNorm(ctx(), args); }
};

TEST_P(RmsNormTest, MatchesTheFormula) {
  for (const RmsNormCase& c : kRmsNormCases) {
    for (DType x : {DType::kF32, DType::kBF16}) {
      for (DType w : {DType::kF32, DType::kBF16}) {
        Check(c, x, w, /*with_residual=*/false, 1e-5f);
        Check(c, x, w, /*with_residual=*/true, 1e-5f);
      }
    }
  }
}

TEST_P(RmsNormTest, EpsMatters) {
  Check({3, 64, 0}, DType::kF32, DType::kF32, false, 1.0f);
  Check({3, 64, 0}, DType::kF32, DType::kF32, true, 10.0f);
}

TEST_P(RmsNormTest, WorksInPlaceAndTwiceTheSame) {
  TestRng rng(3);
  GuardedTensor x(device(), DType::kF32, {5, 577});
  GuardedTensor weight(device(), DType::kF32, {577});
  GuardedTensor y(device(), DType::kF32, {5, 577});
  x.SetNormal(rng);
  weight.SetNormal(rng);
  ASSERT_TRUE(Refusal({.x = x.view(), .weight = weight.view(), .y = y.view(), .eps = 1e-5f}).ok());
  ASSERT_TRUE(Refusal({.x = x.view(), .weight = weight.view(), .y = x.view(), .eps = 1e-5f}).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  EXPECT_EQ(x.GetBytes(), y.GetBytes());
}

TEST_P(RmsNormTest, NanStaysInItsRow) {
  GuardedTensor x(device(), DType::kF32, {3, 40});
  GuardedTensor weight(device(), DType::kF32, {40});
  GuardedTensor y(device(), DType::kF32, {3, 40});
  std::vector<double> values(120, 1.0);
  values[45] = kNan;
  x.Set(values);
  weight.SetAll(1);
  ASSERT_TRUE(Refusal({.x = x.view(), .weight = weight.view(), .y = y.view(), .eps = 1e-5f}).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  EXPECT_TRUE(AllClose(y.Get(), Expected(values, weight.Get(), 1e-5), {1e-6, 1e-5}));
}

TEST_P(RmsNormTest, RefusesWhatDoesNotFit) {
  GuardedTensor x(device(), DType::kF32, {2, 8});
  GuardedTensor weight(device(), DType::kF32, {7});
  GuardedTensor y(device(), DType::kF32, {2, 8});
  EXPECT_EQ(Refusal({.x = x.view(), .weight = weight.view(), .y = y.view(), .eps = 1}).message(),
            "RmsNorm: weight.dim(0) = 7, want 8");
  GuardedTensor good(device(), DType::kF32, {8});
  EXPECT_EQ(Refusal({.x = x.view(), .weight = good.view(), .y = y.view(), .eps = 0}).message(),
            "RmsNorm: eps must be positive");
  GuardedTensor bf16(device(), DType::kBF16, {2, 8});
  EXPECT_EQ(Refusal({.x = x.view(), .weight = good.view(), .y = bf16.view(), .eps = 1}).message(),
            "RmsNorm: y has dtype bfloat16, want float32");
  GuardedTensor rows(device(), DType::kF32, {3, 8});
  EXPECT_EQ(
      Refusal(
          {.x = x.view(), .residual = rows.view(), .weight = good.view(), .y = y.view(), .eps = 1})
          .message(),
      "RmsNorm: residual.dim(0) = 3, want 2");
}

INSTANTIATE_TEST_SUITE_P(Devices, RmsNormTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
