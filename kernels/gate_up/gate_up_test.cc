#include "kernels/gate_up/gate_up.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Case {
  int64_t tokens, inputs, outputs, row_padding;
};
// Outputs short of a block's tile and past it; tiles of rows up to two, three and more for each
// of 132 multiprocessors; one and eight tokens.
constexpr Case kCases[] = {{1, 64, 8, 0},     {8, 128, 40, 8},      {3, 576, 1536, 0},
                           {5, 192, 2048, 8}, {8, 64, 3100 * 8, 0}, {2, 4096, 264, 0},
                           {0, 64, 8, 0},     {7, 1088, 16, 0}};

std::vector<double> Expected(const GuardedTensor& x, const GuardedTensor& weight) {
  const int64_t tokens = x.view().dim(0), inputs = x.view().dim(1);
  const int64_t outputs = weight.view().dim(0) / 2;
  const std::vector<double> xs = x.Get(), ws = weight.Get();
  const auto dot = [&](int64_t t, int64_t row) {
    double sum = 0;
    for (int64_t k = 0; k < inputs; ++k) {
      sum += xs[static_cast<size_t>(t * inputs + k)] * ws[static_cast<size_t>(row * inputs + k)];
    }
    return sum;
  };
  std::vector<double> y;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < outputs; ++i) {
      const int64_t row = i / kGateUpBlock * 2 * kGateUpBlock + i % kGateUpBlock;
      const double gate = dot(t, row);
      y.push_back(gate / (1 + std::exp(-gate)) * dot(t, row + kGateUpBlock));
    }
  }
  return y;
}

class GateUpTest : public OpTest {
 protected:
  bool on_cuda() const { return GetParam().type == DeviceType::kCuda; }
};

TEST_P(GateUpTest, MatchesTheFormula) {
  if (!on_cuda()) GTEST_SKIP() << "no kernel for this device";
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.tokens << "x" << c.inputs << "x" << c.outputs);
    TestRng rng(static_cast<uint64_t>(c.tokens * 7919 + c.inputs * 31 + c.outputs));
    GuardedTensor x(device(), DType::kBF16, {c.tokens, c.inputs}, c.row_padding);
    GuardedTensor weight(device(), DType::kBF16, {2 * c.outputs, c.inputs}, c.row_padding);
    GuardedTensor y(device(), DType::kBF16, {c.tokens, c.outputs}, c.row_padding);
    x.SetNormal(rng);
    weight.SetNormal(rng, 1 / std::sqrt(static_cast<double>(c.inputs)));
    const GateUpArgs args = {.x = x.view(), .weight = weight.view(), .y = y.view()};
    ASSERT_TRUE(GateUp(ctx(), args).ok());
    // Sums of order 1 in f32: 1e-5 and, of a gate near 0 and a large up, as much of the product.
    EXPECT_TRUE(AllClose(y.Get(), Expected(x, weight), {4e-5, 1.0 / 256}));
    for (const GuardedTensor* t : {&x, &weight, &y}) EXPECT_TRUE(t->GuardsIntact());
    const std::vector<uint8_t> once = y.GetBytes();
    ASSERT_TRUE(GateUp(ctx(), args).ok());
    EXPECT_EQ(y.GetBytes(), once);
  }
}

TEST_P(GateUpTest, ATokenDoesNotDependOnTheOthers) {
  if (!on_cuda()) GTEST_SKIP() << "no kernel for this device";
  TestRng rng(5);
  GuardedTensor x(device(), DType::kBF16, {8, 576}), weight(device(), DType::kBF16, {96, 576});
  GuardedTensor all(device(), DType::kBF16, {8, 48}), one(device(), DType::kBF16, {1, 48});
  x.SetNormal(rng);
  weight.SetNormal(rng, 0.05);
  ASSERT_TRUE(GateUp(ctx(), {.x = x.view(), .weight = weight.view(), .y = all.view()}).ok());
  const std::vector<double> want = all.Get();
  for (int64_t t = 0; t < 8; ++t) {
    const TensorView token = x.view().Rows(t, t + 1);
    ASSERT_TRUE(GateUp(ctx(), {.x = token, .weight = weight.view(), .y = one.view()}).ok());
    EXPECT_EQ(one.Get(), std::vector<double>(want.begin() + t * 48, want.begin() + (t + 1) * 48));
  }
}

TEST_P(GateUpTest, RefusesWhatDoesNotFit) {
  GuardedTensor x(device(), DType::kBF16, {2, 64}), weight(device(), DType::kBF16, {32, 64});
  GuardedTensor y(device(), DType::kBF16, {2, 16}), wide(device(), DType::kBF16, {2, 17});
  GuardedTensor odd(device(), DType::kBF16, {24, 64}), f32(device(), DType::kF32, {2, 64});
  const auto run = [&](const GuardedTensor& a, const GuardedTensor& w, const GuardedTensor& out) {
    return std::string(
        GateUp(ctx(), {.x = a.view(), .weight = w.view(), .y = out.view()}).message());
  };
  EXPECT_EQ(run(x, weight, wide), "GateUp: y.dim(1) = 17, want 16");
  EXPECT_EQ(run(x, odd, y), "GateUp: weight.dim(0) must be a multiple of 16");
  EXPECT_EQ(run(f32, weight, y), "GateUp: x has dtype float32, want bfloat16");
  GuardedTensor many(device(), DType::kBF16, {9, 64}), many_y(device(), DType::kBF16, {9, 16});
  EXPECT_EQ(GateUp(ctx(), {.x = many.view(), .weight = weight.view(), .y = many_y.view()}).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(GateUp(ctx(), {.x = x.view(), .weight = weight.view(), .y = y.view()}).ok(), on_cuda());
}

TEST(GateUpCoversTest, SaysWhereTheKernelIs) {
  EXPECT_TRUE(GateUpCovers(DeviceType::kCuda, 8, 4096, 14336));
  EXPECT_FALSE(GateUpCovers(DeviceType::kCpu, 8, 4096, 14336));
  EXPECT_FALSE(GateUpCovers(DeviceType::kCuda, 9, 4096, 14336));
  EXPECT_FALSE(GateUpCovers(DeviceType::kCuda, 1, 4095, 14336));
  EXPECT_FALSE(GateUpCovers(DeviceType::kCuda, 1, 4096, 14337));
}

INSTANTIATE_TEST_SUITE_P(Devices, GateUpTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
