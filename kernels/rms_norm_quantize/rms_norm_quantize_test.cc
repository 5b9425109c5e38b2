#include "kernels/rms_norm_quantize/rms_norm_quantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lowp/small_float.h"
#include "kernels/quantize/testing.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

struct Tensors {
  Tensors(Device& device, const RmsNormQuantizeCase& c, DType dtype, DType weight_dtype,
          const QuantizeForm& f)
      : x(device, dtype, {c.tokens, c.size}, c.row_padding),
        residual(device, dtype, {c.tokens, c.size}, c.row_padding),
        weight(device, weight_dtype, {c.size}),
        y(device, dtype, {c.tokens, c.size}, c.row_padding),
        codes(device, DType::kU8, {c.tokens, c.size}, c.row_padding),
        scale(QuantizeScales(device, f, c.tokens, c.size, c.row_padding)),
        form(f) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.size));
    x.SetNormal(rng);
    residual.SetNormal(rng, 2.0);
    weight.SetUniform(rng, 0.5, 1.5);
  }

  RmsNormQuantizeArgs Args(bool with_residual, bool with_y) const {
    RmsNormQuantizeArgs args{.x = x.view(),
                             .weight = weight.view(),
                             .eps = 1e-5f,
                             .codes = codes.view(),
                             .scale = scale.view(),
                             .unit = form.unit,
                             .rounding = form.rounding,
                             .format = form.format};
    if (with_residual) args.residual = residual.view();
    if (with_y) args.y = y.view();
    return args;
  }
  void ExpectGuardsIntact() const {
    for (const GuardedTensor* t : {&x, &residual, &weight, &y, &codes, &scale}) {
      EXPECT_TRUE(t->GuardsIntact());
    }
  }

  GuardedTensor x, residual, weight, y, codes, scale;
  QuantizeForm form;
};

class RmsNormQuantizeTest : public OpTest {
 protected:
  // The same bits as the two ops, with and without y.
  void Check(const RmsNormQuantizeCase& c, DType dtype, DType weight_dtype,
             const QuantizeForm& form, bool with_residual) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << "x" << c.size << " x " << DTypeName(dtype) << " weight "
                 << DTypeName(weight_dtype) << " residual " << with_residual << " unit "
                 << static_cast<int>(form.unit) << " rounding " << static_cast<int>(form.rounding));
    Tensors want(device(), c, dtype, weight_dtype, form);
    RmsNormArgs norm{
        .x = want.x.view(), .weight = want.weight.view(), .y = want.y.view(), .eps = 1e-5f};
    if (with_residual) norm.residual = want.residual.view();
    ASSERT_EQ(RmsNorm(ctx(), norm), absl::OkStatus());
    ASSERT_EQ(Quantize(ctx(), {.x = want.y.view(),
                               .codes = want.codes.view(),
                               .scale = want.scale.view(),
                               .unit = form.unit,
                               .rounding = form.rounding,
                               .format = form.format}),
              absl::OkStatus());
    for (bool with_y : {false, true}) {
      const Tensors t(device(), c, dtype, weight_dtype, form);
      ASSERT_EQ(RmsNormQuantize(ctx(), t.Args(with_residual, with_y)), absl::OkStatus());
      EXPECT_EQ(t.codes.GetBytes(), want.codes.GetBytes());
      EXPECT_EQ(t.scale.GetBytes(), want.scale.GetBytes());
      EXPECT_EQ(t.residual.GetBytes(), want.residual.GetBytes());
      if (with_y) {
        EXPECT_EQ(t.y.GetBytes(), want.y.GetBytes());
      }
      t.ExpectGuardsIntact();
    }
  }
};

TEST_P(RmsNormQuantizeTest, GivesTheBitsOfTheTwoOps) {
  for (const RmsNormQuantizeCase& c : kRmsNormQuantizeCases) {
    // The CPU's row is the two ops, of whatever size.
    if (device().type() == DeviceType::kCpu && c.tokens * c.size > 50000) continue;
    for (const QuantizeForm& form : kQuantizeForms) {
      for (bool with_residual : {false, true}) {
        Check(c, DType::kBF16, DType::kBF16, form, with_residual);
      }
    }
    Check(c, DType::kF32, DType::kBF16, kQuantizeForms[0], true);
    Check(c, DType::kBF16, DType::kF32, kQuantizeForms[2], false);
  }
}

// Against the formula in f64: half a step of E4M3, at most 2^-4 of the value or 2^-10 scales among
// subnormal codes, and the rounding of y, 2^-9.
TEST_P(RmsNormQuantizeTest, AgreesWithTheFormula) {
  for (const RmsNormQuantizeCase& c : {RmsNormQuantizeCase{5, 4096, 0}, {3, 300, 8}}) {
    const Tensors t(device(), c, DType::kBF16, DType::kBF16, kQuantizeForms[0]);
    ASSERT_TRUE(RmsNormQuantize(ctx(), t.Args(false, false)).ok());
    const Values x = t.x.Get(), weight = t.weight.Get(), codes = t.codes.Get();
    const Values scales = t.scale.Get();
    for (int64_t token = 0; token < c.tokens; ++token) {
      const auto row = static_cast<size_t>(token * c.size);
      double squares = 0;
      for (size_t i = 0; i < weight.size(); ++i) squares += x[row + i] * x[row + i];
      const double norm = 1 / std::sqrt(squares / static_cast<double>(c.size) + 1e-5);
      for (size_t i = 0; i < weight.size(); ++i) {
        const double want = x[row + i] * norm * weight[i];
        const double scale =
            scales[i / 128 * static_cast<size_t>(c.tokens) + static_cast<size_t>(token)];
        const double got = kE4M3Values[static_cast<size_t>(codes[row + i])] * scale;
        const double bound = std::max(std::abs(want) / 16, scale * 0x1p-10) + std::abs(want) / 512;
        ASSERT_NEAR(got, want, 1.001 * bound) << token << ", " << i;
      }
    }
  }
}

// What the header promises between devices, and between the CPU's instruction sets.
TEST_P(RmsNormQuantizeTest, IsNearTheScalarCpu) {
  OpTestBed cpu({.name = "cpu"});
  const RmsNormQuantizeCase c = {16, 4096, 0};
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const QuantizeForm& form : kQuantizeForms) {
      const Tensors here(device(), c, dtype, dtype, form),
          there(cpu.device(), c, dtype, dtype, form);
      ASSERT_EQ(RmsNormQuantize(ctx(), here.Args(true, false)), absl::OkStatus());
      ASSERT_EQ(RmsNormQuantize(cpu.ctx(), there.Args(true, false)), absl::OkStatus());
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " unit " << static_cast<int>(form.unit)
                                      << " rounding " << static_cast<int>(form.rounding));
      ExpectNear(DifferenceOf(here.codes, here.scale, there.codes, there.scale), dtype);
    }
  }
}

TEST_P(RmsNormQuantizeTest, EpsMatters) {
  const RmsNormQuantizeCase c = {2, 256, 0};
  const Tensors small(device(), c, DType::kBF16, DType::kBF16, kQuantizeForms[2]);
  const Tensors large(device(), c, DType::kBF16, DType::kBF16, kQuantizeForms[2]);
  RmsNormQuantizeArgs args = large.Args(false, false);
  args.eps = 10;
  ASSERT_TRUE(RmsNormQuantize(ctx(), small.Args(false, false)).ok());
  ASSERT_TRUE(RmsNormQuantize(ctx(), args).ok());
  EXPECT_GT(small.scale.Get()[0], 2 * large.scale.Get()[0]);
}

TEST_P(RmsNormQuantizeTest, WorksInPlaceAndTwiceTheSame) {
  const RmsNormQuantizeCase c = {9, 4096, 0};
  const Tensors t(device(), c, DType::kBF16, DType::kBF16, kQuantizeForms[0]);
  ASSERT_TRUE(RmsNormQuantize(ctx(), t.Args(false, false)).ok());
  const std::vector<uint8_t> codes = t.codes.GetBytes(), scale = t.scale.GetBytes();
  RmsNormQuantizeArgs args = t.Args(false, false);
  args.y = args.x;
  ASSERT_TRUE(RmsNormQuantize(ctx(), args).ok());
  EXPECT_EQ(t.codes.GetBytes(), codes);
  EXPECT_EQ(t.scale.GetBytes(), scale);
}

TEST_P(RmsNormQuantizeTest, RefusesWhatDoesNotFit) {
  const RmsNormQuantizeCase c = {3, 130, 0};
  const Tensors t(device(), c, DType::kBF16, DType::kBF16, kQuantizeForms[0]);
  const auto refusal = [&](const RmsNormQuantizeArgs& args) {
    return std::string(RmsNormQuantize(ctx(), args).message());
  };
  RmsNormQuantizeArgs args = t.Args(true, true);
  args.scale = args.scale.Rows(0, 1);
  EXPECT_EQ(refusal(args), "RmsNormQuantize: scale.dim(0) = 1, want 2");
  args = t.Args(true, true);
  args.codes = args.codes.Cols(0, 128);
  EXPECT_EQ(refusal(args), "RmsNormQuantize: codes.dim(1) = 128, want 130");
  args = t.Args(true, true);
  args.residual = args.residual->Rows(0, 2);
  EXPECT_EQ(refusal(args), "RmsNormQuantize: residual.dim(0) = 2, want 3");
  args = t.Args(true, true);
  args.y = args.y->Rows(0, 2);
  EXPECT_EQ(refusal(args), "RmsNormQuantize: y.dim(0) = 2, want 3");
  args = t.Args(true, true);
  args.eps = 0;
  EXPECT_EQ(refusal(args), "RmsNormQuantize: eps must be positive");
  for (QuantizeUnit unit : {QuantizeUnit::kTensor, QuantizeUnit::kChannel}) {
    args = t.Args(true, true);
    args.unit = unit;
    EXPECT_EQ(refusal(args), "RmsNormQuantize: the scale must be of groups, of tokens or given");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RmsNormQuantizeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
