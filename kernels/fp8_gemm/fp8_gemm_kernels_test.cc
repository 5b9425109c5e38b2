// The GPU's kernels by name, where the path leaves them to other GPUs or takes them for products
// that the definition is slow to compute in full.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_gemm/fp8_gemm_cases.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"
#include "kernels/fp8_gemm/test_tensors.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;
using Kernel = Fp8GemmKernel;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string Name(const Fp8GemmCase& c, Fp8Units units) {
  return std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
         std::to_string(c.outputs) + " units " + std::to_string(static_cast<int>(units));
}

// What a tile's end does.
enum class Tiled : uint8_t { kPlain, kF32, kVectors, kResidual };

class Fp8GemmKernelsTest : public OpTest {
 protected:
  bool gpu() { return device().type() == DeviceType::kCuda; }
  // 0 on the CPU.
  int32_t capability() { return device().Properties().value().compute_capability; }

  // By this kernel, or the one that the path takes.
  absl::Status Run(std::optional<Kernel> kernel, const Fp8GemmArgs& args) {
    return kernel ? Fp8GemmBy(*kernel, ctx(), args) : Fp8Gemm(ctx(), args);
  }
  // Twice the same bits, and those of every `step`-th output near `want`.
  void ExpectSome(std::optional<Kernel> kernel, Fp8GemmTensors& t, const Fp8GemmArgs& args,
                  const Fp8Sums& want, int64_t step);
  void ExpectDefinition(std::optional<Kernel> kernel, const Fp8GemmCase& c, Fp8Units units,
                        DType dtype);
  void ExpectTiled(const Fp8GemmCase& c, Tiled tiled);
  void ExpectAddends(std::optional<Kernel> kernel, const Fp8GemmCase& c, Fp8Units units);
};

void Fp8GemmKernelsTest::ExpectSome(std::optional<Kernel> kernel, Fp8GemmTensors& t,
                                    const Fp8GemmArgs& args, const Fp8Sums& want, int64_t step) {
  std::vector<uint8_t> first;
  for (int run = 0; run < 2; ++run) {
    t.y.SetAll(kNan);
    ASSERT_EQ(Run(kernel, args), absl::OkStatus());
    if (run == 0) first = t.y.GetBytes();
  }
  EXPECT_EQ(t.y.GetBytes(), first);
  const Values y = t.y.Get();
  EXPECT_TRUE(std::none_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
  Values some;
  for (size_t i = 0; i < y.size(); i += static_cast<size_t>(step)) some.push_back(y[i]);
  ExpectFp8Close(some, want, args.y.dtype);
  t.ExpectGuardsIntact();
}

void Fp8GemmKernelsTest::ExpectDefinition(std::optional<Kernel> kernel, const Fp8GemmCase& c,
                                          Fp8Units units, DType dtype) {
  SCOPED_TRACE(Name(c, units));
  const int64_t step = c.tokens * c.inputs * c.outputs / 1'000'000 + 1;
  Fp8GemmTensors t(device(), c, units, dtype);
  ExpectSome(kernel, t, t.Args(), WantFp8Gemm(t, gpu(), step), step);
}

// On Hopper the path leaves mma.sync what others take it for.
TEST_P(Fp8GemmKernelsTest, MmaAgreesWithTheDefinition) {
  if (capability() < 80) GTEST_SKIP() << "a kernel of sm_80 and later";
  for (const Fp8GemmCase& c : kFp8GemmCases) {
    for (Fp8Units units : kFp8AllUnits) {
      const bool large = c.tokens * c.inputs * c.outputs > 4'000'000;
      const bool takes = c.tokens > 0 && c.padding % 16 == 0 && c.inputs % 16 == 0;
      if (!takes || (large && units != Fp8Units::kBlocks)) continue;
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        ExpectDefinition(Kernel::kMma, c, units, dtype);
      }
    }
  }
}

// So it does with skinny, but for blocks' scales of x off 16 bytes.
TEST_P(Fp8GemmKernelsTest, SkinnyAgreesWithTheDefinition) {
  if (capability() < 89) GTEST_SKIP() << "a kernel of sm_89 and later";
  std::vector<Fp8GemmCase> cases(std::begin(kFp8GemmRingCases), std::end(kFp8GemmRingCases));
  cases.insert(cases.end(), std::begin(kFp8GemmCases), std::end(kFp8GemmCases));
  for (const Fp8GemmCase& c : cases) {
    const bool takes = c.tokens > 0 && c.tokens <= 8 && c.padding % 16 == 0 && c.inputs % 128 == 0;
    if (!takes) continue;
    // Numbers at random take longer than all else where there are many.
    if (c.inputs * c.outputs > 2'000'000) {
      ExpectDefinition(Kernel::kSkinny, c, Fp8Units::kBlocks, DType::kBF16);
      continue;
    }
    for (Fp8Units units : {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs, Fp8Units::kAll}) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        ExpectDefinition(Kernel::kSkinny, c, units, dtype);
      }
    }
  }
}

// The path takes others for most scales of blocks.
TEST_P(Fp8GemmKernelsTest, RingsAgreeWithTheDefinition) {
  if (capability() != 90) GTEST_SKIP() << "a kernel of sm_90";
  for (const Fp8GemmCase& c : kFp8GemmRingCases) {
    for (Fp8Units units : kFp8AllUnits) {
      const int64_t size = c.inputs * c.outputs;
      if (size > 2'000'000 && units != Fp8Units::kBlocks && units != Fp8Units::kTokensAndOutputs) {
        continue;
      }
      if (size > 20'000'000 && units != Fp8Units::kBlocks) continue;
      ExpectDefinition(Kernel::kRing, c, units, DType::kF32);
    }
  }
}

// Of several tiles of each kernel, with scales that are applied once, at the end.
TEST_P(Fp8GemmKernelsTest, LongSumsInOtherUnits) {
  for (int64_t tokens : {8, 24, 64, 100, 132}) {
    if (!gpu() && tokens != 24) continue;
    for (Fp8Units units : {Fp8Units::kTokensAndOutputs, Fp8Units::kAll}) {
      ExpectDefinition({}, {tokens, 7168, 264, 0, 0}, units, DType::kF32);
    }
  }
}

constexpr int64_t kStep = 1009;

// Products small enough for the other tests fit narrow tiles better.
TEST_P(Fp8GemmKernelsTest, WideTiles) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  Fp8GemmTensors t(device(), {129, 272, 16776, 0, 3}, Fp8Units::kBlocks, DType::kBF16);
  const Fp8GemmTileCut cut = CutFp8GemmTiles(t.Args(), 132);
  EXPECT_FALSE(cut.narrow);
  EXPECT_EQ(cut.mixed, 0);
  ExpectSome({}, t, t.Args(), WantFp8Gemm(t, gpu(), kStep), kStep);
}

// Blocks with several tiles, the last of which they share or not.
TEST_P(Fp8GemmKernelsTest, SeveralTilesABlock) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  const auto expect = [&](const Fp8GemmCase& c, int32_t splits, int32_t own) {
    SCOPED_TRACE(std::to_string(c.outputs));
    Fp8GemmTensors t(device(), c, Fp8Units::kBlocks, DType::kBF16);
    const Fp8GemmGroups g = GroupFp8Gemm(t.Args(), 132);
    EXPECT_TRUE(g.wide);
    EXPECT_EQ(g.own, own);
    EXPECT_EQ(g.splits, splits);
    ExpectSome({}, t, t.Args(), WantFp8Gemm(t, gpu(), kStep), kStep);
  };
  expect({33, 16, 18000, 0, 3}, 1, 1);
  expect({36, 16, 18009, 0, 0}, 1, 1);
  expect({36, 1024, 24440, 0, 0}, 2, 1);
  expect({35, 144, 54010, 0, 1}, 1, 3);
}

void Fp8GemmKernelsTest::ExpectTiled(const Fp8GemmCase& c, Tiled tiled) {
  SCOPED_TRACE(Name(c, Fp8Units::kBlocks) + " as " + std::to_string(static_cast<int>(tiled)));
  const DType dtype = tiled == Tiled::kF32 ? DType::kF32 : DType::kBF16;
  const Fp8Units units = tiled == Tiled::kVectors ? Fp8Units::kTokensAndOutputs : Fp8Units::kBlocks;
  Fp8GemmTensors t(device(), c, units, dtype);
  GuardedTensor residual(device(), DType::kF32, {c.tokens, c.outputs});
  Fp8GemmArgs args = t.Args();
  EXPECT_EQ(ChooseFp8Gemm(args, 90), Kernel::kTiles);
  Fp8Sums want = WantFp8Gemm(t, gpu(), kStep);
  if (tiled == Tiled::kResidual) {
    TestRng rng(5);
    residual.SetNormal(rng, 2000);
    args.residual = residual.view();
    const Values r = residual.Get();
    for (size_t i = 0; i < want.size(); ++i) want[i].Add(r[i * kStep]);
  }
  ExpectSome({}, t, args, want, kStep);
}

// A tile's last sums are stored while those of the block's next tile are made.
TEST_P(Fp8GemmKernelsTest, BlocksWithSeveralTiles) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  // Wide, narrow, and of two widths (from 192 and from 256), with tokens and outputs short of
  // tiles; of one stage.
  constexpr Fp8GemmCase kCases[] = {{513, 272, 10248, 0, 3},
                                    {520, 144, 13896, 16, 0},
                                    {774, 1040, 4616, 0, 2},
                                    {774, 272, 11304, 0, 2},
                                    {513, 128, 10248, 0, 3}};
  for (const Fp8GemmCase& c : kCases) {
    for (Tiled tiled : {Tiled::kPlain, Tiled::kF32, Tiled::kVectors, Tiled::kResidual}) {
      ExpectTiled(c, tiled);
    }
  }
}

// Tiles are taken in bands of 16 rows, each of 128 tokens, and here the last band is short: narrow
// tiles, wide ones, and of two widths with 18 rows before the turn.
TEST_P(Fp8GemmKernelsTest, BandsOfRowsOfTiles) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  ExpectTiled({2200, 144, 2120, 0, 0}, Tiled::kPlain);
  ExpectTiled({2200, 144, 2120, 0, 0}, Tiled::kResidual);
  ExpectTiled({3000, 144, 2120, 0, 0}, Tiled::kPlain);
  ExpectTiled({2316, 1040, 1544, 0, 0}, Tiled::kPlain);
}

// What is added to the sums, and how y lies.
struct Addends {
  bool bias, residual;
  DType bias_dtype, residual_dtype, y;
  bool in_place;  // y is the residual
};
constexpr Addends kAddends[] = {
    {true, false, DType::kF32, DType::kF32, DType::kBF16, false},
    {false, true, DType::kF32, DType::kBF16, DType::kBF16, true},
    {true, true, DType::kBF16, DType::kBF16, DType::kBF16, false},
    {true, true, DType::kBF16, DType::kF32, DType::kF32, true},
};

void Fp8GemmKernelsTest::ExpectAddends(std::optional<Kernel> kernel, const Fp8GemmCase& c,
                                       Fp8Units units) {
  const Fp8Sums products = WantFp8Gemm({device(), c, units, DType::kF32}, gpu());
  for (const Addends& a : kAddends) {
    SCOPED_TRACE(Name(c, units) + " addends " + std::to_string(&a - kAddends));
    Fp8GemmTensors t(device(), c, units, a.y);
    GuardedTensor bias(device(), a.bias_dtype, {c.outputs});
    GuardedTensor residual(device(), a.residual_dtype, {c.tokens, c.outputs}, c.padding);
    TestRng rng(3);
    bias.SetNormal(rng, 2000);
    residual.SetNormal(rng, 2000);
    Fp8Sums sums = products;
    const Values b = bias.Get(), r = residual.Get();
    for (size_t i = 0; i < sums.size(); ++i) {
      if (a.bias) sums[i].Add(b[i % b.size()]);
      if (a.residual) sums[i].Add(r[i]);
    }
    Fp8GemmArgs args = t.Args();
    if (a.bias) args.bias = bias.view();
    if (a.residual) args.residual = residual.view();
    if (a.in_place) args.y = residual.view();
    ASSERT_EQ(Run(kernel, args), absl::OkStatus());
    ExpectFp8Close(a.in_place ? residual.Get() : t.y.Get(), sums, a.y);
    t.ExpectGuardsIntact();
    EXPECT_TRUE(bias.GuardsIntact());
    EXPECT_TRUE(residual.GuardsIntact());
  }
}

TEST_P(Fp8GemmKernelsTest, AddsBiasAndResidual) {
  for (const Fp8GemmCase& c : kFp8GemmAddendCases) {
    for (Fp8Units units : {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs}) {
      ExpectAddends({}, c, units);
      const bool fits = c.inputs % 16 == 0 && c.padding % 16 == 0;
      if (fits && capability() >= 80) ExpectAddends(Kernel::kMma, c, units);
      const bool skinny = fits && c.tokens <= 8 && c.inputs % 128 == 0;
      if (skinny && capability() >= 89) ExpectAddends(Kernel::kSkinny, c, units);
    }
  }
}

// A long sum of equal products is exact in blocks of 128, so all that is lost is lost between them.
TEST_P(Fp8GemmKernelsTest, ErrorDoesNotGrowWithInputs) {
  struct Chosen {
    int64_t tokens;
    Kernel of_blocks, of_vectors;
  };
  constexpr Chosen kChosen[] = {
      {2, Kernel::kSplit, Kernel::kRing}, {8, Kernel::kSplit, Kernel::kRing},
      {40, Kernel::kM64, Kernel::kSplit}, {64, Kernel::kM64, Kernel::kSplit},
      {100, Kernel::kFew, Kernel::kFew},  {132, Kernel::kTiles, Kernel::kTiles}};
  const Fp8GemmCase c = {gpu() ? kFp8GemmWaysTokens : 8, 32768, 8, 0, 0};
  for (Fp8Units units : kFp8ServedUnits) {
    Fp8GemmTensors t(device(), c, units, DType::kF32);
    t.x.SetAll(0x38);       // 1
    t.weight.SetAll(0x39);  // 1.125
    t.x_scale.SetAll(1);
    t.weight_scale.SetAll(1);
    const auto expect = [&](int64_t tokens, absl::Status run) {
      SCOPED_TRACE(Name(c, units) + ", tokens " + std::to_string(tokens));
      ASSERT_EQ(run, absl::OkStatus());
      Values y = t.y.Get();
      y.resize(static_cast<size_t>(tokens * c.outputs));
      EXPECT_EQ(y, Values(y.size(), 32768 * 1.125));
      t.y.SetAll(kNan);
    };
    for (const Chosen& chosen : kChosen) {
      if (chosen.tokens > c.tokens) continue;
      const Fp8GemmArgs args = t.Args(chosen.tokens);
      EXPECT_EQ(ChooseFp8Gemm(args, 90), t.blocks() ? chosen.of_blocks : chosen.of_vectors);
      expect(chosen.tokens, Fp8Gemm(ctx(), args));
    }
    for (const Fp8GemmWay& way : Fp8GemmWays(device(), units)) {
      expect(way.tokens, Fp8GemmBy(way.kernel, ctx(), t.Args(way.tokens)));
    }
  }
}

// Either NaN, in x and in the weight, reaches its row and its column of y and nothing else.
TEST_P(Fp8GemmKernelsTest, NanStaysWhereItIs) {
  const Fp8GemmCase c = {gpu() ? kFp8GemmWaysTokens : 8, 384, 136, 0, 0};
  struct Nan {
    int64_t row, input, code;
  };
  const auto set = [&](GuardedTensor& codes, const Nan& nan) {
    Values values = codes.Get();
    values[static_cast<size_t>(nan.row * c.inputs + nan.input)] = static_cast<double>(nan.code);
    codes.Set(values);
  };
  const auto expect = [&](Fp8Units units, DType dtype, const Nan& of_x, const Nan& of_weight) {
    Fp8GemmTensors t(device(), c, units, dtype);
    for (const Fp8GemmWay& way : Fp8GemmWays(device(), units)) {
      SCOPED_TRACE(Name(c, units) + " by " + way.name);
      const Values x = t.x.Get(), weight = t.weight.Get();
      const int64_t token = of_x.row % way.tokens;
      set(t.x, {token, of_x.input, of_x.code});
      set(t.weight, of_weight);
      t.y.SetAll(0);
      ASSERT_EQ(Fp8GemmBy(way.kernel, ctx(), t.Args(way.tokens)), absl::OkStatus());
      const Values y = t.y.Get();
      for (int64_t i = 0; i < way.tokens * c.outputs; ++i) {
        const bool nan = i / c.outputs == token || i % c.outputs == of_weight.row;
        ASSERT_EQ(std::isnan(y[static_cast<size_t>(i)]), nan) << i;
      }
      t.x.Set(x);
      t.weight.Set(weight);
    }
  };
  for (Fp8Units units : {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs}) {
    expect(units, DType::kF32, {0, 200, 0x7f}, {135, 0, 0xff});
    expect(units, DType::kBF16, {99, 383, 0xff}, {64, 127, 0x7f});
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GemmKernelsTest, ::testing::ValuesIn(Fp8GemmDevices()),
                         DeviceName);

}  // namespace
}  // namespace millrace
