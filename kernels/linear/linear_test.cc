#include "kernels/linear/linear.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/linear/linear_cases.h"
#include "kernels/linear/linear_impl.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kFloats[] = {DType::kF32, DType::kBF16};

struct Dtypes {
  DType x = DType::kF32, weight = DType::kF32, bias = DType::kF32, y = DType::kF32;
};

struct Sums {
  std::vector<double> value;      // the formula
  std::vector<double> magnitude;  // the sum of the products' absolute values
};

Sums Expected(const GuardedTensor& x, const GuardedTensor& weight, const GuardedTensor* bias) {
  const int64_t tokens = x.view().dim(0), inputs = x.view().dim(1), outputs = weight.view().dim(0);
  const std::vector<double> xs = x.Get(), ws = weight.Get();
  const std::vector<double> bs =
      bias == nullptr ? std::vector<double>(static_cast<size_t>(outputs), 0.0) : bias->Get();
  Sums sums;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < outputs; ++n) {
      double sum = bs[static_cast<size_t>(n)], magnitude = std::abs(sum);
      for (int64_t k = 0; k < inputs; ++k) {
        const double product =
            xs[static_cast<size_t>(t * inputs + k)] * ws[static_cast<size_t>(n * inputs + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      sums.value.push_back(sum);
      sums.magnitude.push_back(magnitude);
    }
  }
  return sums;
}

// Each f32 sum may lose 2^-24 of the magnitude per step of its longest chain: at most inputs / 4
// additions in a lane and a few between lanes. In practice far less; 1e-6 holds and a missing or
// doubled product does not. A bf16 result loses another 2^-9 of itself.
//
// The GPU's tensor cores cut what they add instead of rounding it, up to 2^-23 of the sum for each
// 16 inputs: 5e-6.
void ExpectClose(const std::vector<double>& actual, const Sums& expected, DType y, bool gpu) {
  ASSERT_EQ(actual.size(), expected.value.size());
  const double rounding = y == DType::kBF16 ? 1.0 / 256 : 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = (gpu ? 5e-6 : 1e-6) * expected.magnitude[i] +
                           rounding * std::abs(expected.value[i]) + 1e-30;
    ASSERT_LE(std::abs(actual[i] - expected.value[i]), allowed)
        << "element " << i << " is " << actual[i] << ", want " << expected.value[i];
  }
}

class LinearTest : public OpTest {
 protected:
  void Check(const LinearCase& c, const Dtypes& d, bool with_bias) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.inputs << "x" << c.outputs << " bias "
                                    << with_bias << " x " << DTypeName(d.x) << " w "
                                    << DTypeName(d.weight) << " y " << DTypeName(d.y));
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.inputs * 31 + c.outputs));
    GuardedTensor x(device(), d.x, {c.tokens, c.inputs}, c.row_padding);
    GuardedTensor weight(device(), d.weight, {c.outputs, c.inputs}, c.row_padding);
    GuardedTensor bias(device(), d.bias, {c.outputs});
    GuardedTensor y(device(), d.y, {c.tokens, c.outputs}, c.row_padding);
    x.SetNormal(rng);
    weight.SetNormal(rng);
    bias.SetNormal(rng);
    LinearArgs args = {.x = x.view(), .weight = weight.view(), .bias = {}, .y = y.view()};
    if (with_bias) args.bias = bias.view();
    const absl::Status status = Linear(ctx(), args);
    ASSERT_TRUE(status.ok()) << status;
    ExpectClose(y.Get(), Expected(x, weight, with_bias ? &bias : nullptr), d.y,
                GetParam().type == DeviceType::kCuda);
    for (const GuardedTensor* t : {&x, &weight, &bias, &y}) EXPECT_TRUE(t->GuardsIntact());
    const std::vector<uint8_t> once = y.GetBytes();
    ASSERT_TRUE(Linear(ctx(), args).ok());
    EXPECT_EQ(y.GetBytes(), once);
  }

  // y of the first `tokens` tokens, alone.
  std::vector<uint8_t> RunFirst(const GuardedTensor& x, const GuardedTensor& weight,
                                int64_t tokens) {
    GuardedTensor y(device(), DType::kF32, {tokens, weight.view().dim(0)});
    EXPECT_TRUE(
        Linear(ctx(),
               {.x = x.view().Rows(0, tokens), .weight = weight.view(), .bias = {}, .y = y.view()})
            .ok());
    return y.GetBytes();
  }

  absl::Status Run(const GuardedTensor& x, const GuardedTensor& weight, const GuardedTensor& y) {
    return Linear(ctx(), {.x = x.view(), .weight = weight.view(), .bias = {}, .y = y.view()});
  }
};

TEST_P(LinearTest, MatchesTheFormula) {
  for (const LinearCase& c : kLinearCases) {
    for (DType w : kFloats) {
      Check(c, {.weight = w}, /*with_bias=*/false);
      Check(c, {.weight = w}, /*with_bias=*/true);
    }
  }
}

TEST_P(LinearTest, EachDtypeAlone) {
  for (const LinearCase& c : {LinearCase{3, 77, 10, 1}, LinearCase{50, 77, 10, 1}}) {
    for (DType x : kFloats) {
      for (DType w : kFloats) {
        for (DType b : kFloats) {
          for (DType y : kFloats) {
            Check(c, {.x = x, .weight = w, .bias = b, .y = y}, /*with_bias=*/true);
          }
        }
      }
    }
  }
}

TEST_P(LinearTest, AllBf16) {
  constexpr DType kB = DType::kBF16;
  for (const LinearCase& c : kLinearBf16Cases) {
    Check(c, {.x = kB, .weight = kB, .bias = kB, .y = kB}, /*with_bias=*/true);
    Check(c, {.x = kB, .weight = kB, .bias = DType::kF32, .y = DType::kF32}, /*with_bias=*/true);
    Check(c, {.x = kB, .weight = kB, .y = DType::kF32}, /*with_bias=*/false);
  }
}

TEST_P(LinearTest, ServingShapes) {
  for (const LinearCase& c : kLinearServingCases) {
    Check(c, {.weight = DType::kBF16}, /*with_bias=*/false);
  }
}

// Promised for the CPU only.
class LinearCpuTest : public LinearTest {};

TEST_P(LinearCpuTest, ATokenDoesNotDependOnTheOthers) {
  TestRng rng(5);
  for (DType w : kFloats) {
    for (int64_t inputs : {97, 1300}) {
      GuardedTensor x(device(), DType::kF32, {140, inputs});
      GuardedTensor weight(device(), w, {21, inputs});
      x.SetNormal(rng);
      weight.SetNormal(rng);
      const std::vector<uint8_t> all = RunFirst(x, weight, 140);
      for (int64_t tokens : {1, 2, 3, 4, 5, 31, 32, 33, 64, 139}) {  // both kernels, every tile
        const std::vector<uint8_t> some = RunFirst(x, weight, tokens);
        EXPECT_EQ(some, std::vector<uint8_t>(all.begin(), all.begin() + some.size()))
            << tokens << " tokens of " << inputs << " " << DTypeName(w);
      }
    }
  }
}

// An Inf or NaN in one token or weight row reaches exactly the outputs that use it: nothing padded
// or neighbouring is multiplied in.
TEST_P(LinearTest, NanAndInfStayWhereTheyBelong) {
  for (int64_t tokens : {3, 40}) {
    for (DType w : kFloats) {
      GuardedTensor x(device(), DType::kF32, {tokens, 37}, 2);
      GuardedTensor weight(device(), w, {6, 37}, 3);
      GuardedTensor y(device(), DType::kF32, {tokens, 6});
      std::vector<double> xs(static_cast<size_t>(tokens * 37), 1.0), ws(6 * 37, 1.0);
      xs[37 + 36] = kInf;  // token 1, last input
      ws[2 * 37 + 5] = kNan;
      ws[4 * 37 + 36] = -1;
      x.Set(xs);
      weight.Set(ws);
      ASSERT_TRUE(Run(x, weight, y).ok());
      EXPECT_TRUE(AllClose(y.Get(), Expected(x, weight, nullptr).value, {.absolute = 1e-5}));
    }
  }
}

TEST_P(LinearTest, RefusesWhatDoesNotFit) {
  GuardedTensor x(device(), DType::kF32, {2, 8}), weight(device(), DType::kF32, {3, 8});
  GuardedTensor y(device(), DType::kF32, {2, 3});
  GuardedTensor narrow(device(), DType::kF32, {3, 7}), flat(device(), DType::kF32, {8});
  GuardedTensor ids(device(), DType::kI32, {2, 8}), wide(device(), DType::kF32, {2, 4});
  EXPECT_EQ(Run(x, narrow, y).message(), "Linear: weight.dim(1) = 7, want 8");
  EXPECT_EQ(Run(x, weight, wide).message(), "Linear: y.dim(1) = 4, want 3");
  EXPECT_EQ(Run(flat, weight, y).message(), "Linear: x has rank 1, want 2");
  EXPECT_EQ(Run(ids, weight, y).message(), "Linear: x has dtype int32, want float32 or bfloat16");
  EXPECT_EQ(
      Linear(ctx(), {.x = x.view(), .weight = weight.view(), .bias = flat.view(), .y = y.view()})
          .message(),
      "Linear: bias.dim(0) = 8, want 3");
  TensorView columns = weight.view();
  columns.strides[1] = 2;
  EXPECT_EQ(Linear(ctx(), {.x = x.view(), .weight = columns, .bias = {}, .y = y.view()}).message(),
            "Linear: weight has innermost stride 2, want 1");
}

TEST_P(LinearTest, NeedsTheWorkspaceItSays) {
  const bool cuda = GetParam().type == DeviceType::kCuda;  // where only cuBLASLt takes any
  for (int64_t tokens : {1, 574}) {
    if (cuda && tokens == 1) continue;
    constexpr int64_t kInputs = 1304, kOutputs = 12;
    GuardedTensor x(device(), cuda ? DType::kBF16 : DType::kF32, {tokens, kInputs});
    GuardedTensor weight(device(), DType::kBF16, {kOutputs, kInputs});
    GuardedTensor bias(device(), DType::kF32, {kOutputs});
    GuardedTensor y(device(), DType::kF32, {tokens, kOutputs});
    const int64_t bytes = LinearWorkspaceBytes(device(), kInputs, kOutputs);
    GuardedTensor memory(device(), DType::kU8, {bytes});
    Workspace enough(memory.view().data, bytes), small(memory.view().data, 1024);
    const LinearArgs args = {
        .x = x.view(), .weight = weight.view(), .bias = bias.view(), .y = y.view()};
    EXPECT_TRUE(Linear({device(), Stream{}, enough}, args).ok());
    EXPECT_TRUE(memory.GuardsIntact());
    const absl::Status status = Linear({device(), Stream{}, small}, args);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);
INSTANTIATE_TEST_SUITE_P(Cpu, LinearCpuTest, ::testing::ValuesIn(DevicesUnderTest()), DeviceName);

// Bits must not depend on how many threads there are.
TEST(LinearThreadsTest, AgreeBitForBit) {
  TestRng values(9);
  std::vector<double> xs(70 * 1300), ws(19 * 1300);
  for (double& v : xs) v = values.Normal();
  for (double& v : ws) v = values.Normal();
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa > DetectIsa()) continue;
    for (int64_t tokens : {1, 8, 70}) {
      std::vector<std::vector<uint8_t>> results;
      for (int threads : {1, 2, 3, 5}) {
        OpTestBed bed({.name = "cpu", .threads = threads, .isa = isa});
        GuardedTensor x(bed.device(), DType::kF32, {70, 1300});
        GuardedTensor weight(bed.device(), DType::kBF16, {19, 1300});
        GuardedTensor y(bed.device(), DType::kF32, {tokens, 19});
        x.Set(xs);
        weight.Set(ws);
        ASSERT_TRUE(
            Linear(
                bed.ctx(),
                {.x = x.view().Rows(0, tokens), .weight = weight.view(), .bias = {}, .y = y.view()})
                .ok());
        results.push_back(y.GetBytes());
        EXPECT_EQ(results.back(), results.front()) << threads << " threads, " << tokens;
      }
    }
  }
}

TEST(PlanLinearBlocksTest, CoversAndFitsItsScratch) {
  for (int64_t tokens : {1, 33, 62, 140, 512}) {
    for (int64_t inputs : {0, 1, 576, 800, 801, 1300, 4096, 14336}) {
      const int64_t padded = LinearPaddedInputs(inputs);
      const LinearBlocks b = PlanLinearBlocks(tokens, padded);
      EXPECT_GE(b.token_blocks * b.tokens, tokens);
      EXPECT_LT((b.token_blocks - 1) * b.tokens, tokens);
      EXPECT_GE(b.input_blocks * b.inputs, padded);
      EXPECT_EQ(b.inputs % kLinearPadding, 0);
      EXPECT_LE(kLinearBlockRows * (b.inputs + kLinearRowGap + b.tokens * 16),
                LinearScratchFloats(padded))
          << tokens << " tokens, " << inputs << " inputs";
    }
  }
}

// The table of README.md, on 132 multiprocessors.
TEST(ChooseLinearCudaTest, FollowsTheTable) {
  const auto choose = [](int64_t tokens, int64_t inputs, int64_t outputs, DType dtype) {
    alignas(16) static char memory[16];  // only its alignment counts
    void* data = memory;
    return ChooseLinearCuda({.x = TensorView::Of(data, dtype, {tokens, inputs}),
                             .weight = TensorView::Of(data, dtype, {outputs, inputs}),
                             .bias = {},
                             .y = TensorView::Of(data, dtype, {tokens, outputs})},
                            132);
  };
  const auto shape = [&](int64_t tokens, int64_t outputs) {
    const LinearCudaPath path = choose(tokens, 4096, outputs, DType::kBF16);
    return path.kernel == LinearCudaKernel::kSkinny ? path.shape : -1;
  };
  EXPECT_EQ(shape(1, 4096), 0);
  EXPECT_EQ(shape(8, 132 * 32), 0);
  EXPECT_EQ(shape(8, 132 * 32 + 1), 1);
  EXPECT_EQ(shape(4, 6144), 1);
  EXPECT_EQ(shape(4, 28672), 2);
  EXPECT_EQ(shape(5, 28672), -1);
  EXPECT_EQ(shape(8, 128256), 2);
  EXPECT_EQ(shape(8, 14336), 2);
  EXPECT_EQ(shape(9, 4096), 3);
  EXPECT_EQ(shape(16, 6144), 4);
  EXPECT_EQ(shape(16, 8192), -1);
  EXPECT_EQ(shape(17, 4096), -1);
  EXPECT_EQ(choose(17, 4096, 4096, DType::kBF16).kernel, LinearCudaKernel::kCublas);
  EXPECT_EQ(choose(1, 72, 4096, DType::kBF16).kernel, LinearCudaKernel::kCublas);
  EXPECT_EQ(choose(1, 4096, 4096, DType::kF32).kernel, LinearCudaKernel::kCublas);
  EXPECT_EQ(choose(1, 7, 4096, DType::kBF16).kernel, LinearCudaKernel::kGeneric);
}

}  // namespace
}  // namespace millrace
