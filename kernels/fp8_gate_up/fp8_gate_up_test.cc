#include "kernels/fp8_gate_up/fp8_gate_up.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp8_gate_up/fp8_gate_up_cases.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

struct Tensors : Fp8Operands {
  Tensors(Device& device, const Fp8GateUpCase& c, bool of_blocks)
      : Fp8Operands(device, {c.tokens, c.inputs, 2 * c.outputs, c.padding, c.scale_padding},
                    of_blocks ? Fp8Units::kBlocks : Fp8Units::kTokensAndOutputs,
                    Fp8UnitSum(c.inputs), 4 * Fp8UnitSum(c.inputs)),
        codes(device, DType::kU8, {c.tokens, c.outputs}, c.padding),
        scale(device, DType::kF32, {c.outputs / 128, c.tokens}, c.scale_padding),
        flags(device, DType::kI32, {Fp8GemmFlags(device).value()}) {
    flags.SetAll(0);
  }

  Fp8GateUpArgs Args() const {
    return {.x = x.view(),
            .x_scale = x_scale.view(),
            .weight = weight.view(),
            .weight_scale = weight_scale.view(),
            .codes = codes.view(),
            .scale = scale.view(),
            .flags = flags.view(),
            .scales = blocks() ? Fp8GemmScales::kBlocks : Fp8GemmScales::kVectors};
  }
  void ExpectGuardsIntact() const {
    Fp8Operands::ExpectGuardsIntact();
    for (const GuardedTensor* t : {&codes, &scale, &flags}) EXPECT_TRUE(t->GuardsIntact());
  }

  GuardedTensor codes, scale, flags;
};

// A number and how far from it a result may be.
struct Near {
  double value = 0, error = 0;
};

// The activation by its formula.
class Oracle {
 public:
  Oracle(const Tensors& t, const Fp8GateUpCase& c, bool cuts) : case_(c), product_(t, cuts) {}

  Near Activation(int64_t m, int64_t i) const {
    const Near gate = Sum(m, i), up = Sum(m, case_.outputs + i);
    const double silu = gate.value / (1 + std::exp(-gate.value));
    // silu rises by at most 1.1; f32 and the fast exponential lose some 2^-21.
    const double silu_error = 1.1 * gate.error + 0x1p-20 * std::abs(silu);
    return {silu * up.value, silu_error * (std::abs(up.value) + up.error) +
                                 (std::abs(silu) + silu_error) * up.error};
  }

 private:
  Near Sum(int64_t m, int64_t n) const {
    const Fp8Element sum = product_.At(m, n);
    return {sum.value, 1e-6 * sum.magnitude + sum.cut};
  }

  const Fp8GateUpCase& case_;
  Fp8Product product_;
};

class Fp8GateUpTest : public OpTest {
 protected:
  // A group's scale is that of its largest activation, unless given or rounded to a power of two,
  // and each code half a step of E4M3 at most from the activation, or from the largest code: 2^-4
  // of it, or 2^-10 scales among subnormal codes.
  void ExpectClose(const Tensors& t, const Fp8GateUpCase& c, QuantizeScale rounding,
                   double given = 0) {
    const Oracle oracle(t, c, device().type() == DeviceType::kCuda);
    const Values codes = t.codes.Get(), scales = t.scale.Get();
    for (int64_t m = 0; m < c.tokens; ++m) {
      for (int64_t first = 0; first < c.outputs; first += 128) {
        const double scale = rounding == QuantizeScale::kGiven
                                 ? given
                                 : scales[static_cast<size_t>(first / 128 * c.tokens + m)];
        Near amax;
        for (int64_t i = first; i < first + 128; ++i) {
          const Near want = oracle.Activation(m, i);
          amax.value = std::max(amax.value, std::abs(want.value));
          amax.error = std::max(amax.error, want.error);
          const double got = DecodeE4M3(codes[static_cast<size_t>(m * c.outputs + i)]) * scale;
          const double nearest = std::clamp(want.value, -448 * scale, 448 * scale);
          const double step = std::max(std::abs(nearest) / 16, scale * 0x1p-10);
          ASSERT_NEAR(got, nearest, 1.001 * step + 1.1 * want.error) << m << ", " << i;
        }
        if (rounding != QuantizeScale::kF32) continue;
        ASSERT_NEAR(scale * 448, amax.value, 1e-6 * amax.value + amax.error) << m << ", " << first;
      }
    }
  }
};

TEST_P(Fp8GateUpTest, AgreesWithTheDefinition) {
  for (const Fp8GateUpCase& c : kFp8GateUpCases) {
    for (bool blocks : {true, false}) {
      SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
                   std::to_string(c.outputs) + (blocks ? " blocks" : " vectors"));
      const Tensors t(device(), c, blocks);
      ASSERT_EQ(Fp8GateUp(ctx(), t.Args()), absl::OkStatus());
      ExpectClose(t, c, QuantizeScale::kF32);
      t.ExpectGuardsIntact();
      EXPECT_EQ(t.flags.Get(), Values(static_cast<size_t>(t.flags.size()), 0.0));
      const std::vector<uint8_t> codes = t.codes.GetBytes(), scales = t.scale.GetBytes();
      ASSERT_EQ(Fp8GateUp(ctx(), t.Args()), absl::OkStatus());
      EXPECT_EQ(t.codes.GetBytes(), codes);
      EXPECT_EQ(t.scale.GetBytes(), scales);
    }
  }
}

TEST_P(Fp8GateUpTest, RoundsScalesToPowersOfTwo) {
  for (int64_t tokens : {4, 132}) {
    const Fp8GateUpCase c = {tokens, 256, 128, 0, 0};
    const Tensors t(device(), c, true);
    ASSERT_EQ(Fp8GateUp(ctx(), t.Args()), absl::OkStatus());
    const Values plain = t.scale.Get();
    Fp8GateUpArgs args = t.Args();
    args.rounding = QuantizeScale::kPowerOfTwo;
    ASSERT_EQ(Fp8GateUp(ctx(), args), absl::OkStatus());
    const Values rounded = t.scale.Get();
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(rounded[i], std::exp2(std::ceil(std::log2(plain[i])))) << i;
    }
    ExpectClose(t, c, args.rounding);
  }
}

// Below some of the activations' own, so that codes saturate.
TEST_P(Fp8GateUpTest, TakesAGivenScale) {
  for (int64_t tokens : {4, 132, 260}) {
    for (bool blocks : {true, false}) {
      const Fp8GateUpCase c = {tokens, 256, 256, 0, 0};
      const Tensors t(device(), c, blocks);
      GuardedTensor given(device(), DType::kF32, {1});
      given.SetAll(0x1p-6);
      Fp8GateUpArgs args = t.Args();
      args.scale = given.view();
      args.rounding = QuantizeScale::kGiven;
      ASSERT_EQ(Fp8GateUp(ctx(), args), absl::OkStatus());
      ExpectClose(t, c, args.rounding, 0x1p-6);
      const Values codes = t.codes.Get();
      EXPECT_NE(std::count(codes.begin(), codes.end(), 0x7e), 0);
      EXPECT_EQ(given.Get(), Values{0x1p-6});
      EXPECT_TRUE(given.GuardsIntact());
      t.ExpectGuardsIntact();
    }
  }
}

TEST_P(Fp8GateUpTest, NanStaysInItsRow) {
  const Fp8GateUpCase c = {132, 256, 128, 0, 0};
  Tensors t(device(), c, true);
  Values x = t.x.Get();
  x[7 * 256 + 200] = 0x7f;
  t.x.Set(x);
  ASSERT_EQ(Fp8GateUp(ctx(), t.Args()), absl::OkStatus());
  const Values codes = t.codes.Get();
  for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(codes[i] == 0x7f, i / 128 == 7) << i;
}

TEST_P(Fp8GateUpTest, RefusesWhatDoesNotFit) {
  const Tensors t(device(), {3, 128, 128, 0, 0}, true);
  const auto refusal = [&](const Fp8GateUpArgs& args) {
    return std::string(Fp8GateUp(ctx(), args).message());
  };
  Fp8GateUpArgs args = t.Args();
  args.weight = args.weight.Rows(0, 128);
  EXPECT_EQ(refusal(args), "Fp8GateUp: weight.dim(0) must be a multiple of 256");
  args = t.Args();
  args.codes = args.codes.Cols(0, 64);
  EXPECT_EQ(refusal(args), "Fp8GateUp: codes.dim(1) = 64, want 128");
  args = t.Args();
  args.scale = args.scale.Cols(0, 2);
  EXPECT_EQ(refusal(args), "Fp8GateUp: scale.dim(1) = 2, want 3");
  args = t.Args();
  args.weight_scale = args.weight_scale.Rows(0, 1);
  EXPECT_EQ(refusal(args), "Fp8GateUp: weight_scale.dim(0) = 1, want 2");
  args = t.Args();
  args.rounding = QuantizeScale::kGiven;
  EXPECT_EQ(refusal(args), "Fp8GateUp: scale has rank 2, want 1");
}

TEST_P(Fp8GateUpTest, WantsATileForEveryMultiprocessor) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*Fp8GateUpLeastTokens(device(), 4096, 14336 + 64), kNever);
  EXPECT_EQ(*Fp8GateUpLeastTokens(device(), 4096 + 8, 14336), kNever);
  const DeviceProperties properties = device().Properties().value();
  for (int64_t outputs : {128, 2048, 14336}) {
    const int64_t least = *Fp8GateUpLeastTokens(device(), 4096, outputs);
    if (device().type() != DeviceType::kCuda || properties.compute_capability != 90) {
      EXPECT_EQ(least, kNever);
      continue;
    }
    const auto tiles = [&](int64_t tokens) { return (tokens + 127) / 128 * (outputs / 128); };
    EXPECT_GE(tiles(least), properties.multiprocessors);
    EXPECT_GT(least, 128);
    EXPECT_TRUE(least == 129 || tiles(least - 1) < properties.multiprocessors) << least;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GateUpTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
