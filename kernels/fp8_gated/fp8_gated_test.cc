#include "kernels/fp8_gated/fp8_gated.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp8_gated/fp8_gated_impl.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;

// Paddings in elements, of rows of codes, of scales of x and of y.
struct Case {
  int64_t tokens, inputs, outputs, padding, scale_padding;
};
// One block and many, several tiles a block on Hopper, of which some blocks have one more; K of
// less than a block's pieces, of as many, and of several rounds; outputs whose ups begin inside a
// block of scales; one token and eight.
constexpr Case kCases[] = {{0, 128, 16, 0, 0},    {1, 128, 16, 0, 0},    {8, 256, 128, 16, 0},
                           {3, 1024, 144, 0, 5},  {5, 1152, 272, 16, 3}, {2, 4096, 80, 0, 2},
                           {7, 384, 2176, 32, 0}, {1, 4096, 256, 0, 0},  {8, 384, 4624, 0, 0},
                           {2, 4224, 2128, 0, 0}};

struct Tensors : Fp8Operands {
  Tensors(Device& device, const Case& c, bool of_blocks)
      : Fp8Operands(device, {c.tokens, c.inputs, 2 * c.outputs, c.padding, c.scale_padding},
                    of_blocks ? Fp8Units::kBlocks : Fp8Units::kTokensAndOutputs,
                    Fp8UnitSum(c.inputs), 4 * Fp8UnitSum(c.inputs)),
        y(device, DType::kBF16, {c.tokens, c.outputs}, c.scale_padding) {}

  Fp8GatedArgs Args() const {
    return {.x = x.view(),
            .x_scale = x_scale.view(),
            .weight = weight.view(),
            .weight_scale = weight_scale.view(),
            .y = y.view(),
            .scales = blocks() ? Fp8GemmScales::kBlocks : Fp8GemmScales::kVectors};
  }

  GuardedTensor y;
};

// By its formula.
class Oracle {
 public:
  Oracle(const Tensors& t, const Case& c) : case_(c), product_(t, /*cuts=*/false) {}

  double Value(int64_t m, int64_t i) const {
    const double gate = product_.At(m, i).value;
    return gate / (1 + std::exp(-gate)) * product_.At(m, case_.outputs + i).value;
  }

 private:
  const Case& case_;
  Fp8Product product_;
};

class Fp8GatedTest : public OpTest {
 protected:
  bool covered() {
    const auto covers = Fp8GatedCovers(device(), 128, 16);
    return covers.ok() && *covers;
  }

  template <typename Run>
  void ExpectFormula(const Case& c, bool blocks, Run run) {
    SCOPED_TRACE(testing::Message() << c.tokens << " x " << c.inputs << " x " << c.outputs
                                    << (blocks ? " blocks" : " vectors"));
    Tensors t(device(), c, blocks);
    ASSERT_EQ(run(t.Args()), absl::OkStatus());
    const Oracle oracle(t, c);
    const Values y = t.y.Get();
    for (int64_t m = 0; m < c.tokens; ++m) {
      for (int64_t i = 0; i < c.outputs; ++i) {
        const double want = oracle.Value(m, i);
        // Products are exact in f16 pairs, sums in f32 of some units.
        ASSERT_NEAR(y[static_cast<size_t>(m * c.outputs + i)], want,
                    2e-4 + std::abs(want) / 256 * 1.01)
            << m << ", " << i;
      }
    }
    t.ExpectGuardsIntact();
    EXPECT_TRUE(t.y.GuardsIntact());
    const std::vector<uint8_t> once = t.y.GetBytes();
    t.y.SetAll(0);
    ASSERT_EQ(run(t.Args()), absl::OkStatus());
    EXPECT_EQ(t.y.GetBytes(), once);
  }
  // Whether the device has a row at all: a GPU may be too old.
  bool runs() { return device().type() == DeviceType::kCpu || covered(); }
};

TEST_P(Fp8GatedTest, MatchesTheFormula) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  for (const Case& c : kCases) {
    // The CPU has no tiles that these shapes are for, and takes long.
    const bool large = 2 * c.outputs * c.inputs > int64_t{1} << 20;
    if (large && device().type() == DeviceType::kCpu) continue;
    for (bool blocks : {false, true}) {
      ExpectFormula(c, blocks, [&](const Fp8GatedArgs& args) { return Fp8Gated(ctx(), args); });
    }
  }
}

// By name, as the path takes rings on Hopper.
TEST_P(Fp8GatedTest, SkinnyMatchesTheFormula) {
  if (!covered()) GTEST_SKIP() << "no kernel for this device";
  for (const Case& c : kCases) {
    if (c.tokens == 0) continue;
    for (bool blocks : {false, true}) {
      ExpectFormula(c, blocks, [&](const Fp8GatedArgs& args) {
        return Fp8GatedCudaBy(Fp8GatedKernel::kSkinny, ctx(), args);
      });
    }
  }
}

TEST_P(Fp8GatedTest, ATokenDoesNotDependOnTheOthers) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  const Case c = {8, 640, 48, 0, 0};
  const Tensors t(device(), c, false);
  ASSERT_EQ(Fp8Gated(ctx(), t.Args()), absl::OkStatus());
  const Values all = t.y.Get();
  GuardedTensor one(device(), DType::kBF16, {1, c.outputs});
  for (int64_t m = 0; m < c.tokens; ++m) {
    Fp8GatedArgs args = t.Args();
    args.x = args.x.Rows(m, m + 1);
    args.x_scale = args.x_scale.Rows(m, m + 1);
    args.y = one.view();
    ASSERT_EQ(Fp8Gated(ctx(), args), absl::OkStatus());
    EXPECT_EQ(one.Get(), Values(all.begin() + m * c.outputs, all.begin() + (m + 1) * c.outputs));
  }
}

TEST_P(Fp8GatedTest, RefusesWhatDoesNotFit) {
  const Tensors t(device(), {3, 128, 32, 0, 0}, false);
  const auto refusal = [&](const Fp8GatedArgs& args) {
    return std::string(Fp8Gated(ctx(), args).message());
  };
  Fp8GatedArgs args = t.Args();
  args.weight = args.weight.Rows(0, 63);
  EXPECT_EQ(refusal(args), "Fp8Gated: weight.dim(0) must be even");
  args = t.Args();
  args.y = args.y.Cols(0, 16);
  EXPECT_EQ(refusal(args), "Fp8Gated: y.dim(1) = 16, want 32");
  args = t.Args();
  args.weight_scale = args.weight_scale.Rows(0, 32);
  EXPECT_EQ(refusal(args), "Fp8Gated: weight_scale.dim(0) = 32, want 64");
  const Tensors many(device(), {9, 128, 16, 0, 0}, false), odd(device(), {1, 128, 24, 0, 0}, false);
  EXPECT_EQ(Fp8Gated(ctx(), many.Args()).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Fp8Gated(ctx(), odd.Args()).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Fp8Gated(ctx(), t.Args()).ok(), runs());
}

TEST_P(Fp8GatedTest, WorkspaceBoundHoldsAndTooLittleIsRefused) {
  if (!runs()) GTEST_SKIP() << "no kernel for this device";
  const Case c = {8, 256, 144, 0, 0};
  const Tensors t(device(), c, false);
  const int64_t bytes = Fp8GatedWorkspaceBytes(device(), c.inputs, c.outputs).value();
  OpTestBed exact(GetParam(), bytes), small(GetParam(), bytes / 2);
  EXPECT_EQ(Fp8Gated({device(), Stream{}, exact.workspace()}, t.Args()), absl::OkStatus());
  if (bytes == 0) return;
  EXPECT_EQ(Fp8Gated({device(), Stream{}, small.workspace()}, t.Args()).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(Fp8GatedTest, CoversWholePieces) {
  const bool any = covered();
  const auto covers = [&](int64_t inputs, int64_t outputs) {
    return Fp8GatedCovers(device(), inputs, outputs).value();
  };
  EXPECT_EQ(covers(4096, 14336), any);
  EXPECT_FALSE(covers(4096 + 64, 14336));
  EXPECT_FALSE(covers(0, 14336));
  EXPECT_FALSE(covers(4096, 14336 + 8));
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GatedTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
