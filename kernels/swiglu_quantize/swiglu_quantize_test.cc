#include "kernels/swiglu_quantize/swiglu_quantize.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/lowp/small_float.h"
#include "kernels/quantize/testing.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu_quantize/swiglu_quantize_cases.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

struct Tensors {
  Tensors(Device& device, const SwigluQuantizeCase& c, DType dtype, const QuantizeForm& f)
      : x(device, dtype, {c.tokens, 2 * c.size}, c.row_padding),
        codes(device, DType::kU8, {c.tokens, c.size}, c.row_padding),
        scale(QuantizeScales(device, f, c.tokens, c.size, c.row_padding)),
        form(f),
        block(c.block),
        limit(c.limit) {
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.size));
    x.SetNormal(rng, 3);
  }

  SwigluQuantizeArgs Args() const {
    return {.x = x.view(),
            .block = block,
            .limit = limit,
            .codes = codes.view(),
            .scale = scale.view(),
            .unit = form.unit,
            .rounding = form.rounding,
            .format = form.format};
  }

  GuardedTensor x, codes, scale;
  QuantizeForm form;
  int64_t block;
  float limit;
};

class SwigluQuantizeTest : public OpTest {
 protected:
  // The same bits as the two ops.
  void Check(const SwigluQuantizeCase& c, DType dtype, const QuantizeForm& form) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.size << " in " << c.block << " x "
                                    << DTypeName(dtype) << " unit " << static_cast<int>(form.unit)
                                    << " rounding " << static_cast<int>(form.rounding));
    const Tensors want(device(), c, dtype, form), t(device(), c, dtype, form);
    const GuardedTensor y(device(), dtype, {c.tokens, c.size});
    ASSERT_EQ(
        Swiglu(ctx(), {.x = want.x.view(), .y = y.view(), .block = c.block, .limit = c.limit}),
        absl::OkStatus());
    ASSERT_EQ(Quantize(ctx(), {.x = y.view(),
                               .codes = want.codes.view(),
                               .scale = want.scale.view(),
                               .unit = form.unit,
                               .rounding = form.rounding,
                               .format = form.format}),
              absl::OkStatus());
    ASSERT_EQ(SwigluQuantize(ctx(), t.Args()), absl::OkStatus());
    EXPECT_EQ(t.codes.GetBytes(), want.codes.GetBytes());
    EXPECT_EQ(t.scale.GetBytes(), want.scale.GetBytes());
    for (const GuardedTensor* tensor : {&t.x, &t.codes, &t.scale}) {
      EXPECT_TRUE(tensor->GuardsIntact());
    }
  }
};

TEST_P(SwigluQuantizeTest, GivesTheBitsOfTheTwoOps) {
  for (const SwigluQuantizeCase& c : kSwigluQuantizeCases) {
    // The CPU's row is the two ops, of whatever size.
    if (device().type() == DeviceType::kCpu && c.tokens * c.size > 50000) continue;
    for (const QuantizeForm& form : kQuantizeForms) Check(c, DType::kBF16, form);
    Check(c, DType::kF32, kQuantizeForms[0]);
  }
}

// Against the formula in f64: half a step of E4M3, at most 2^-4 of the value or 2^-10 scales among
// subnormal codes, and the rounding of y, 2^-9.
TEST_P(SwigluQuantizeTest, AgreesWithTheFormula) {
  const SwigluQuantizeCase c = {5, 1040, 0, 8, 4};
  const Tensors t(device(), c, DType::kBF16, kQuantizeForms[0]);
  ASSERT_TRUE(SwigluQuantize(ctx(), t.Args()).ok());
  const Values x = t.x.Get(), codes = t.codes.Get(), scales = t.scale.Get();
  for (int64_t token = 0; token < c.tokens; ++token) {
    for (int64_t i = 0; i < c.size; ++i) {
      const auto at = static_cast<size_t>(token * 2 * c.size + 2 * i - i % c.block);
      const double gate = std::min(x[at], 4.0);
      const double up = std::clamp(x[at + static_cast<size_t>(c.block)], -4.0, 4.0);
      const double want = gate / (1 + std::exp(-gate)) * up;
      const double scale = scales[static_cast<size_t>(i / 128 * c.tokens + token)];
      const double got =
          kE4M3Values[static_cast<size_t>(codes[static_cast<size_t>(token * c.size + i)])] * scale;
      const double bound = std::max(std::abs(want) / 16, scale * 0x1p-10) + std::abs(want) / 512;
      ASSERT_NEAR(got, want, 1.001 * bound) << token << ", " << i;
    }
  }
}

// What the header promises between devices, and between the CPU's instruction sets.
TEST_P(SwigluQuantizeTest, IsNearTheScalarCpu) {
  OpTestBed cpu({.name = "cpu"});
  const SwigluQuantizeCase c = {16, 4096, 0};
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const QuantizeForm& form : kQuantizeForms) {
      const Tensors here(device(), c, dtype, form), there(cpu.device(), c, dtype, form);
      ASSERT_EQ(SwigluQuantize(ctx(), here.Args()), absl::OkStatus());
      ASSERT_EQ(SwigluQuantize(cpu.ctx(), there.Args()), absl::OkStatus());
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " unit " << static_cast<int>(form.unit)
                                      << " rounding " << static_cast<int>(form.rounding));
      ExpectNear(DifferenceOf(here.codes, here.scale, there.codes, there.scale), dtype);
    }
  }
}

TEST_P(SwigluQuantizeTest, TwiceTheSame) {
  const Tensors t(device(), {37, 1024, 0}, DType::kBF16, kQuantizeForms[2]);
  ASSERT_TRUE(SwigluQuantize(ctx(), t.Args()).ok());
  const std::vector<uint8_t> codes = t.codes.GetBytes();
  ASSERT_TRUE(SwigluQuantize(ctx(), t.Args()).ok());
  EXPECT_EQ(t.codes.GetBytes(), codes);
}

TEST_P(SwigluQuantizeTest, RefusesWhatDoesNotFit) {
  const Tensors t(device(), {3, 130, 0}, DType::kBF16, kQuantizeForms[0]);
  const auto refusal = [&](const SwigluQuantizeArgs& args) {
    return std::string(SwigluQuantize(ctx(), args).message());
  };
  SwigluQuantizeArgs args = t.Args();
  args.scale = args.scale.Rows(0, 1);
  EXPECT_EQ(refusal(args), "SwigluQuantize: scale.dim(0) = 1, want 2");
  args = t.Args();
  args.codes = args.codes.Cols(0, 128);
  EXPECT_EQ(refusal(args), "SwigluQuantize: codes.dim(1) = 128, want 130");
  args = t.Args();
  args.x = args.x.Cols(0, 259);
  EXPECT_EQ(refusal(args), "SwigluQuantize: x.dim(1) must be even");
  args = t.Args();
  args.block = 4;
  EXPECT_EQ(refusal(args), "SwigluQuantize: block must divide the number of outputs");
  args = t.Args();
  args.limit = -1;
  EXPECT_EQ(refusal(args), "SwigluQuantize: limit must not be negative");
  for (QuantizeUnit unit : {QuantizeUnit::kTensor, QuantizeUnit::kChannel}) {
    args = t.Args();
    args.unit = unit;
    EXPECT_EQ(refusal(args), "SwigluQuantize: the scale must be of groups, of tokens or given");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SwigluQuantizeTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
