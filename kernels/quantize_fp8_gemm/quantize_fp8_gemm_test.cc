#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/quantize/quantize.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

// Paddings in elements, of rows of codes.
struct Case {
  int64_t inputs, outputs, padding;
};
// One tile and many, the last one whole and not; of the kernel for up to 4096 inputs, fewer than
// its warps have pieces, some warps with one more, all; likewise of the one for more.
constexpr Case kCases[] = {{128, 1, 0},     {256, 31, 16},   {1024, 33, 0}, {1152, 4096, 16},
                           {4096, 2119, 0}, {4096, 4224, 0}, {4224, 40, 0}, {6272, 2128, 32},
                           {14336, 321, 0}, {16384, 64, 0}};

// What Fp8Operands has but x, which are floats; of those it holds the codes once they are made.
struct Tensors : Fp8Operands {
  Tensors(Device& device, const Case& c, DType dtype, Fp8Units of = Fp8Units::kTokensAndOutputs)
      : Fp8Operands(device, {1, c.inputs, c.outputs, c.padding, 0}, of, Fp8UnitSum(c.inputs),
                    4 * Fp8UnitSum(c.inputs)),
        floats(device, DType::kBF16, {1, c.inputs}),
        bias(device, dtype == DType::kF32 ? DType::kBF16 : DType::kF32, {c.outputs}),
        y(device, dtype, {1, c.outputs}) {
    TestRng rng(static_cast<uint64_t>(c.inputs * 31 + c.outputs));
    floats.SetNormal(rng, 100.0);
    bias.SetNormal(rng);
  }

  QuantizeFp8GemmArgs Args(bool with_bias) const {
    QuantizeFp8GemmArgs args = {.x = floats.view(),
                                .weight = weight.view(),
                                .weight_scale = weight_scale.view(),
                                .y = y.view(),
                                .bias = {}};
    if (with_bias) args.bias = bias.view();
    return args;
  }
  QuantizeArgs Codes() const {
    return {.x = floats.view(),
            .codes = x.view(),
            .scale = x_scale.view(),
            .unit = QuantizeUnit::kToken};
  }

  GuardedTensor floats, bias, y;
};

class QuantizeFp8GemmTest : public OpTest {
 protected:
  // Whether the device has a row: not every GPU has.
  bool runs() {
    const Tensors t(device(), {128, 32, 0}, DType::kF32);
    const absl::Status status = QuantizeFp8Gemm(ctx(), t.Args(false));
    const bool may_not = device().type() == DeviceType::kCuda && absl::IsUnimplemented(status);
    EXPECT_TRUE(status.ok() || may_not) << status;
    return !may_not;
  }

  int64_t most_outputs() {
    if (device().type() == DeviceType::kCpu) return std::numeric_limits<int64_t>::max();
    return 32 * device().Properties().value().multiprocessors;
  }

  void Check(const Case& c, DType dtype, bool with_bias, Fp8Units units) {
    SCOPED_TRACE(testing::Message()
                 << c.inputs << " x " << c.outputs << " y " << DTypeName(dtype) << " bias "
                 << with_bias << " units " << static_cast<int>(units));
    const Tensors t(device(), c, dtype, units);
    ASSERT_EQ(Quantize(ctx(), t.Codes()), absl::OkStatus());
    ASSERT_EQ(QuantizeFp8Gemm(ctx(), t.Args(with_bias)), absl::OkStatus());
    const Fp8Product product(t, /*cuts=*/false);
    const Values y = t.y.Get(), bias = t.bias.Get();
    for (int64_t i = 0; i < c.outputs; ++i) {
      const Fp8Element element = product.At(0, i);
      const double added = with_bias ? bias[static_cast<size_t>(i)] : 0;
      const double want = element.value + added;
      // Tensor cores cut up to 2^-23 of the sum for each 16 inputs (kernels/linear).
      const double rounding = dtype == DType::kBF16 ? std::abs(want) / 256 : 0;
      ASSERT_NEAR(y[static_cast<size_t>(i)], want, 5e-6 * (element.magnitude + 1) + rounding) << i;
    }
    t.ExpectGuardsIntact();
    for (const GuardedTensor* tensor : {&t.floats, &t.bias, &t.y}) {
      EXPECT_TRUE(tensor->GuardsIntact());
    }
    const std::vector<uint8_t> once = t.y.GetBytes();
    ASSERT_EQ(QuantizeFp8Gemm(ctx(), t.Args(with_bias)), absl::OkStatus());
    EXPECT_EQ(t.y.GetBytes(), once);
  }
};

TEST_P(QuantizeFp8GemmTest, MatchesTheFormula) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  for (const Case& c : kCases) {
    // The CPU has no tiles that these shapes are for, and takes long.
    const bool large = c.outputs * c.inputs > int64_t{1} << 20;
    if (large && device().type() == DeviceType::kCpu) continue;
    if (c.outputs > most_outputs()) continue;  // on smaller GPUs
    Check(c, DType::kBF16, /*with_bias=*/false, Fp8Units::kTokensAndOutputs);
    Check(c, DType::kF32, /*with_bias=*/true, Fp8Units::kTokensAndOutputs);
  }
  Check(kCases[1], DType::kBF16, /*with_bias=*/true, Fp8Units::kTokensAndAll);
}

// The largest magnitude may be anywhere, and counts alone.
TEST_P(QuantizeFp8GemmTest, TheScaleIsOfTheWholeRow) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  for (int64_t inputs : {4096, 14336}) {
    const Tensors t(device(), {inputs, 32, 0}, DType::kF32);
    for (int64_t at : {int64_t{0}, int64_t{1001}, inputs - 1}) {
      Values row = t.floats.Get();
      row[static_cast<size_t>(at)] = -30000;
      GuardedTensor x(device(), DType::kBF16, {1, inputs});
      x.Set(row);
      QuantizeArgs codes = t.Codes();
      codes.x = x.view();
      QuantizeFp8GemmArgs args = t.Args(false);
      args.x = x.view();
      ASSERT_EQ(Quantize(ctx(), codes), absl::OkStatus());
      ASSERT_EQ(QuantizeFp8Gemm(ctx(), args), absl::OkStatus());
      const Fp8Product product(t, /*cuts=*/false);
      const Values y = t.y.Get();
      for (int64_t i = 0; i < 32; ++i) {
        const Fp8Element element = product.At(0, i);
        ASSERT_NEAR(y[static_cast<size_t>(i)], element.value, 5e-6 * element.magnitude)
            << "largest at " << at << ", output " << i;
      }
    }
  }
}

TEST_P(QuantizeFp8GemmTest, ZerosAndNan) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  Tensors t(device(), {4224, 40, 0}, DType::kF32);
  t.floats.SetAll(0);
  ASSERT_EQ(QuantizeFp8Gemm(ctx(), t.Args(false)), absl::OkStatus());
  for (double y : t.y.Get()) ASSERT_EQ(y, 0);
  Values row(4224, 1.0);
  row[77] = std::numeric_limits<double>::quiet_NaN();
  t.floats.Set(row);
  ASSERT_EQ(QuantizeFp8Gemm(ctx(), t.Args(true)), absl::OkStatus());
  for (double y : t.y.Get()) ASSERT_TRUE(std::isnan(y));
}

TEST_P(QuantizeFp8GemmTest, RefusesWhatDoesNotFit) {
  const Tensors t(device(), {256, 64, 0}, DType::kF32);
  const auto refusal = [&](const QuantizeFp8GemmArgs& args) {
    return std::string(QuantizeFp8Gemm(ctx(), args).message());
  };
  QuantizeFp8GemmArgs args = t.Args(true);
  args.weight = args.weight.Cols(0, 128);
  EXPECT_EQ(refusal(args), "QuantizeFp8Gemm: weight.dim(1) = 128, want 256");
  args = t.Args(true);
  args.weight_scale = args.weight_scale.Rows(0, 32);
  EXPECT_EQ(refusal(args), "QuantizeFp8Gemm: weight_scale.dim(0) = 32, want 64");
  args = t.Args(true);
  args.y = args.y.Cols(0, 32);
  EXPECT_EQ(refusal(args), "QuantizeFp8Gemm: y.dim(1) = 32, want 64");
  args = t.Args(true);
  args.bias = args.bias->Rows(0, 32);
  EXPECT_EQ(refusal(args), "QuantizeFp8Gemm: bias.dim(0) = 32, want 64");
  args = t.Args(true);
  args.x = t.bias.view();
  EXPECT_NE(refusal(args), "");
  const auto code = [&](int64_t tokens, int64_t inputs, int64_t outputs) {
    const GuardedTensor x(device(), DType::kBF16, {tokens, inputs});
    const GuardedTensor weight(device(), DType::kU8, {outputs, inputs});
    const GuardedTensor scale(device(), DType::kF32, {1});
    const GuardedTensor y(device(), DType::kBF16, {tokens, outputs});
    return QuantizeFp8Gemm(ctx(), {.x = x.view(),
                                   .weight = weight.view(),
                                   .weight_scale = scale.view(),
                                   .y = y.view(),
                                   .bias = {}})
        .code();
  };
  EXPECT_EQ(code(0, 256, 64), absl::StatusCode::kOk);
  EXPECT_EQ(code(2, 256, 64), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(1, 64, 64), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(code(1, 16384 + 128, 1), absl::StatusCode::kUnimplemented);
  if (device().type() == DeviceType::kCuda) {
    EXPECT_EQ(code(1, 128, 1 << 16), absl::StatusCode::kUnimplemented);
  }
}

TEST_P(QuantizeFp8GemmTest, WorkspaceBoundHoldsAndTooLittleIsRefused) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  const Case c = {1024, 33, 0};
  const Tensors t(device(), c, DType::kF32);
  const int64_t bytes = QuantizeFp8GemmWorkspaceBytes(device(), c.inputs).value();
  OpTestBed exact(GetParam(), bytes), small(GetParam(), bytes / 2);
  EXPECT_EQ(QuantizeFp8Gemm({device(), Stream{}, exact.workspace()}, t.Args(true)),
            absl::OkStatus());
  if (bytes == 0) return;
  EXPECT_EQ(QuantizeFp8Gemm({device(), Stream{}, small.workspace()}, t.Args(true)).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(QuantizeFp8GemmTest, CoversOneTileOfEachMultiprocessor) {
  const auto covers = [&](int64_t inputs, int64_t outputs) {
    return QuantizeFp8GemmCovers(device(), inputs, outputs).value();
  };
  EXPECT_FALSE(covers(0, 4096));
  EXPECT_FALSE(covers(4096 + 64, 4096));
  EXPECT_FALSE(covers(16384 + 128, 4096));
  EXPECT_FALSE(covers(4096, 1 << 16));
  EXPECT_FALSE(covers(4096, 16));
  if (!runs() || device().type() == DeviceType::kCpu) {
    EXPECT_FALSE(covers(4096, 4096));
    return;
  }
  const int64_t most = most_outputs();
  EXPECT_TRUE(covers(14336, most));
  EXPECT_TRUE(covers(128, most / 2 + 1));
  EXPECT_FALSE(covers(4096, most / 2));
  EXPECT_FALSE(covers(4096, most + 1));
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizeFp8GemmTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
