#include "kernels/fp8_gemm/fp8_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp8_gemm/fp8_gemm_cases.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"
#include "kernels/testing/fp8_operands.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

constexpr Fp8Units kUnits[] = {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs,
                               Fp8Units::kTokensAndAll, Fp8Units::kAllAndOutputs, Fp8Units::kAll};

struct Tensors : Fp8Operands {
  Tensors(Device& device, const Fp8GemmCase& c, Fp8Units of, DType y_dtype)
      : Fp8Operands(device, {c.tokens, c.inputs, c.outputs, c.padding, c.scale_padding}, of, 0.001,
                    0.01),
        y(device, y_dtype, {c.tokens, c.outputs}, c.padding),
        flags(device, DType::kI32, {Fp8GemmFlags(device).value()}) {
    flags.SetAll(0);
  }

  Fp8GemmArgs Args() const {
    return {.x = x.view(),
            .x_scale = x_scale.view(),
            .weight = weight.view(),
            .weight_scale = weight_scale.view(),
            .y = y.view(),
            .flags = flags.view(),
            .scales = blocks() ? Fp8GemmScales::kBlocks : Fp8GemmScales::kVectors};
  }

  void ExpectGuardsIntact() const {
    Fp8Operands::ExpectGuardsIntact();
    EXPECT_TRUE(y.GuardsIntact());
    EXPECT_TRUE(flags.GuardsIntact());
  }

  GuardedTensor y, flags;
};

// Every `step`-th of all outputs. `cuts`: as of Fp8Product.
Fp8Sums Want(const Tensors& t, bool cuts, int64_t step = 1) {
  const Fp8Product product(t, cuts);
  Fp8Sums sums;
  for (int64_t i = 0; i < t.shape.tokens * t.shape.outputs; i += step) {
    const auto [value, magnitude, cut] = product.At(i / t.shape.outputs, i % t.shape.outputs);
    sums.Add(value, magnitude, cut);
  }
  return sums;
}

class Fp8GemmTest : public OpTest {
 protected:
  bool gpu() { return device().type() == DeviceType::kCuda; }
};

TEST_P(Fp8GemmTest, AgreesWithTheDefinition) {
  for (const Fp8GemmCase& c : kFp8GemmCases) {
    for (Fp8Units units : kUnits) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        const bool large = c.tokens * c.inputs * c.outputs > 4'000'000;
        if (large && (units != Fp8Units::kBlocks || dtype == DType::kF32)) continue;
        SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
                     std::to_string(c.outputs) + " units " +
                     std::to_string(static_cast<int>(units)));
        Tensors t(device(), c, units, dtype);
        for (int run = 0; run < 2; ++run) {
          t.y.SetAll(kNan);
          ASSERT_EQ(Fp8Gemm(ctx(), t.Args()), absl::OkStatus());
        }
        ExpectFp8Close(t.y.Get(), Want(t, gpu()), dtype);
        t.ExpectGuardsIntact();
        EXPECT_EQ(t.flags.Get(), Values(static_cast<size_t>(t.flags.size()), 0.0));
      }
    }
  }
}

// What the tile kernel does with scales of vectors and with f32, on few of its tiles.
TEST_P(Fp8GemmTest, ManyTokensInAllUnits) {
  const Fp8GemmCase c = {132, 144, 264, 0, 0};
  for (Fp8Units units : kUnits) {
    Tensors t(device(), c, units, DType::kF32);
    ASSERT_EQ(Fp8Gemm(ctx(), t.Args()), absl::OkStatus());
    ExpectFp8Close(t.y.Get(), Want(t, gpu()), DType::kF32);
    t.ExpectGuardsIntact();
  }
}

constexpr int64_t kStep = 1009;

// Every kStep-th of y, and twice the same bits.
void ExpectSome(const OpContext& ctx, Tensors& t, const Fp8GemmArgs& args, const Fp8Sums& want) {
  std::vector<uint8_t> first;
  for (int run = 0; run < 2; ++run) {
    t.y.SetAll(kNan);
    ASSERT_EQ(Fp8Gemm(ctx, args), absl::OkStatus());
    if (run == 0) first = t.y.GetBytes();
  }
  EXPECT_EQ(t.y.GetBytes(), first);
  const Values y = t.y.Get();
  EXPECT_TRUE(std::none_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
  Values some;
  for (size_t i = 0; i < y.size(); i += kStep) some.push_back(y[i]);
  ExpectFp8Close(some, want, args.y.dtype);
  t.ExpectGuardsIntact();
}

// Products small enough for the other tests fit narrow tiles better.
TEST_P(Fp8GemmTest, WideTiles) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  Tensors t(device(), {129, 272, 16776, 0, 3}, Fp8Units::kBlocks, DType::kBF16);
  EXPECT_FALSE(CutFp8GemmTiles(t.Args(), 132).narrow);
  ExpectSome(ctx(), t, t.Args(), Want(t, gpu(), kStep));
}

// Blocks with several tiles, the last of which they share or not.
TEST_P(Fp8GemmTest, SeveralTilesABlock) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  const auto expect = [&](const Fp8GemmCase& c, int32_t splits, int32_t own) {
    SCOPED_TRACE(std::to_string(c.outputs));
    Tensors t(device(), c, Fp8Units::kBlocks, DType::kBF16);
    const Fp8GemmGroups g = GroupFp8Gemm(t.Args(), 132);
    EXPECT_TRUE(g.wide);
    EXPECT_EQ(g.own, own);
    EXPECT_EQ(g.splits, splits);
    ExpectSome(ctx(), t, t.Args(), Want(t, gpu(), kStep));
  };
  expect({33, 16, 18000, 0, 3}, 1, 1);
  expect({36, 16, 18009, 0, 0}, 1, 1);
  expect({36, 1024, 24440, 0, 0}, 2, 1);
  expect({35, 144, 54010, 0, 1}, 1, 3);
}

// y of the tile kernel where blocks have several tiles.
enum class Tiled : uint8_t { kPlain, kF32, kVectors, kResidual };

void ExpectTiled(const OpContext& ctx, Device& device, const Fp8GemmCase& c, Tiled tiled) {
  const DType dtype = tiled == Tiled::kF32 ? DType::kF32 : DType::kBF16;
  const Fp8Units units = tiled == Tiled::kVectors ? Fp8Units::kTokensAndOutputs : Fp8Units::kBlocks;
  Tensors t(device, c, units, dtype);
  GuardedTensor residual(device, DType::kF32, {c.tokens, c.outputs});
  Fp8GemmArgs args = t.Args();
  Fp8Sums want = Want(t, true, kStep);
  if (tiled == Tiled::kResidual) {
    TestRng rng(5);
    residual.SetNormal(rng, 2000);
    args.residual = residual.view();
    const Values r = residual.Get();
    for (size_t i = 0; i < want.value.size(); ++i) {
      want.value[i] += r[i * kStep];
      want.magnitude[i] += std::abs(r[i * kStep]);
    }
  }
  ExpectSome(ctx, t, args, want);
}

// A tile's last sums are stored while those of the block's next tile are made.
TEST_P(Fp8GemmTest, BlocksWithSeveralTiles) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  // Wide, narrow, and of two widths (from 192 and from 256), with tokens and outputs short of
  // tiles; of one stage.
  constexpr Fp8GemmCase kCases[] = {{513, 272, 10248, 0, 3},
                                    {520, 144, 13896, 16, 0},
                                    {774, 1040, 4616, 0, 2},
                                    {774, 272, 11304, 0, 1},
                                    {513, 128, 10248, 0, 3}};
  for (const Fp8GemmCase& c : kCases) {
    for (Tiled tiled : {Tiled::kPlain, Tiled::kF32, Tiled::kVectors, Tiled::kResidual}) {
      SCOPED_TRACE(std::to_string(c.inputs) + " x " + std::to_string(c.outputs) + " as " +
                   std::to_string(static_cast<int>(tiled)));
      ExpectTiled(ctx(), device(), c, tiled);
    }
  }
}

// On this GPU the path leaves mma.sync what others take it for; so it is called by name.
TEST_P(Fp8GemmTest, MmaAgreesWithTheDefinition) {
  if (!gpu()) GTEST_SKIP() << "a kernel of GPUs";
  for (const Fp8GemmCase& c : kFp8GemmCases) {
    for (Fp8Units units : kUnits) {
      Tensors t(device(), c, units, DType::kBF16);
      const bool large = c.tokens * c.inputs * c.outputs > 4'000'000;
      const bool takes = c.tokens > 0 && c.padding % 16 == 0 && c.inputs % 16 == 0;
      if (!takes || (large && units != Fp8Units::kBlocks)) continue;
      SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
                   std::to_string(c.outputs) + " units " + std::to_string(static_cast<int>(units)));
      t.y.SetAll(kNan);
      ASSERT_EQ(Fp8GemmCudaBy(Fp8GemmKernel::kMma, ctx(), t.Args()), absl::OkStatus());
      ExpectFp8Close(t.y.Get(), Want(t, gpu()), DType::kBF16);
      t.ExpectGuardsIntact();
    }
  }
}

// By name, as the path takes others for most scales of blocks.
TEST_P(Fp8GemmTest, RingsAgreeWithTheDefinition) {
  const auto properties = device().Properties();
  ASSERT_TRUE(properties.ok());
  if (!gpu() || properties->compute_capability != 90) GTEST_SKIP() << "a kernel of sm_90";
  for (const Fp8GemmCase& c : kFp8GemmRingCases) {
    for (Fp8Units units : kUnits) {
      const int64_t size = c.inputs * c.outputs;
      if (size > 2'000'000 && units != Fp8Units::kBlocks && units != Fp8Units::kTokensAndOutputs) {
        continue;
      }
      if (size > 20'000'000 && units != Fp8Units::kBlocks) continue;
      SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
                   std::to_string(c.outputs) + " units " + std::to_string(static_cast<int>(units)));
      Tensors t(device(), c, units, DType::kF32);
      std::vector<uint8_t> once;
      for (int run = 0; run < 3; ++run) {
        t.y.SetAll(kNan);
        ASSERT_EQ(Fp8GemmCudaBy(Fp8GemmKernel::kRing, ctx(), t.Args()), absl::OkStatus());
        if (run == 0) once = t.y.GetBytes();
        EXPECT_EQ(t.y.GetBytes(), once);
      }
      const int64_t step = c.tokens * size / 1'000'000 + 1;
      const Values y = t.y.Get();
      EXPECT_TRUE(std::none_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }));
      Values some;
      for (size_t i = 0; i < y.size(); i += static_cast<size_t>(step)) some.push_back(y[i]);
      ExpectFp8Close(some, Want(t, gpu(), step), DType::kF32);
      t.ExpectGuardsIntact();
    }
  }
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

TEST_P(Fp8GemmTest, AddsBiasAndResidual) {
  for (const Fp8GemmCase& c : kFp8GemmAddendCases) {
    for (Fp8Units units : {Fp8Units::kBlocks, Fp8Units::kTokensAndOutputs}) {
      Tensors plain(device(), c, units, DType::kF32);
      const Fp8Sums products = Want(plain, gpu());
      for (const Addends& a : kAddends) {
        SCOPED_TRACE(std::to_string(c.tokens) + " x " + std::to_string(c.inputs) + " x " +
                     std::to_string(c.outputs) + " addends " + std::to_string(&a - kAddends));
        Tensors t(device(), c, units, a.y);
        GuardedTensor bias(device(), a.bias_dtype, {c.outputs});
        GuardedTensor residual(device(), a.residual_dtype, {c.tokens, c.outputs}, c.padding);
        TestRng rng(3);
        bias.SetNormal(rng, 2000);
        residual.SetNormal(rng, 2000);
        Fp8Sums sums = products;
        const Values b = bias.Get(), r = residual.Get();
        for (size_t i = 0; i < sums.value.size(); ++i) {
          const double added = (a.bias ? b[i % b.size()] : 0) + (a.residual ? r[i] : 0);
          sums.value[i] += added;
          sums.magnitude[i] += std::abs(added);
        }
        Fp8GemmArgs args = t.Args();
        if (a.bias) args.bias = bias.view();
        if (a.residual) args.residual = residual.view();
        if (a.in_place) args.y = residual.view();
        ASSERT_EQ(Fp8Gemm(ctx(), args), absl::OkStatus());
        ExpectFp8Close(a.in_place ? residual.Get() : t.y.Get(), sums, a.y);
        t.ExpectGuardsIntact();
        EXPECT_TRUE(bias.GuardsIntact());
        EXPECT_TRUE(residual.GuardsIntact());
      }
    }
  }
}

TEST_P(Fp8GemmTest, TwoRunsAgreeBitForBit) {
  for (const Fp8GemmCase& c : {Fp8GemmCase{8, 6400, 136, 0, 0}, Fp8GemmCase{260, 528, 520, 0, 0}}) {
    Tensors t(device(), c, Fp8Units::kBlocks, DType::kF32);
    ASSERT_TRUE(Fp8Gemm(ctx(), t.Args()).ok());
    const std::vector<uint8_t> first = t.y.GetBytes();
    t.y.SetAll(kNan);
    ASSERT_TRUE(Fp8Gemm(ctx(), t.Args()).ok());
    EXPECT_EQ(t.y.GetBytes(), first);
  }
}

// A long sum of equal products is exact in blocks of 128, so all that is lost is lost between them.
TEST_P(Fp8GemmTest, ErrorDoesNotGrowWithInputs) {
  for (int64_t tokens : {int64_t{2}, int64_t{132}}) {
    const Fp8GemmCase c = {tokens, 32768, 8, 0, 2};
    Tensors t(device(), c, Fp8Units::kBlocks, DType::kF32);
    t.x.SetAll(0x38);       // 1
    t.weight.SetAll(0x39);  // 1.125
    t.x_scale.SetAll(1);
    t.weight_scale.SetAll(1);
    ASSERT_TRUE(Fp8Gemm(ctx(), t.Args()).ok());
    EXPECT_EQ(t.y.Get(), Values(static_cast<size_t>(tokens * 8), 32768 * 1.125));
  }
}

TEST_P(Fp8GemmTest, NanStaysWhereItIs) {
  const Fp8GemmCase c = {3, 256, 16, 0, 1};
  Tensors t(device(), c, Fp8Units::kBlocks, DType::kF32);
  Values codes = t.x.Get();
  codes[256 + 200] = 0x7f;
  t.x.Set(codes);
  ASSERT_TRUE(Fp8Gemm(ctx(), t.Args()).ok());
  const Values y = t.y.Get();
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 16 == 1) << i;
}

TEST_P(Fp8GemmTest, NoInputsGiveZeros) {
  const Fp8GemmCase c = {3, 0, 5, 0, 0};
  Tensors t(device(), c, Fp8Units::kTokensAndOutputs, DType::kF32);
  ASSERT_EQ(Fp8Gemm(ctx(), t.Args()), absl::OkStatus());
  EXPECT_EQ(t.y.Get(), Values(15, 0.0));
}

TEST_P(Fp8GemmTest, RefusesWhatDoesNotFit) {
  const Fp8GemmCase c = {3, 130, 9, 0, 0};
  const Tensors t(device(), c, Fp8Units::kBlocks, DType::kF32);
  Fp8GemmArgs args = t.Args();
  args.weight = args.weight.Cols(0, 129);
  EXPECT_EQ(Fp8Gemm(ctx(), args).message(), "Fp8Gemm: weight.dim(1) = 129, want 130");
  args = t.Args();
  args.x_scale = args.x_scale.Rows(0, 1);
  EXPECT_EQ(Fp8Gemm(ctx(), args).message(), "Fp8Gemm: x_scale.dim(0) = 1, want 2");
  args = t.Args();
  args.weight_scale = args.weight_scale.Cols(0, 1);
  EXPECT_EQ(Fp8Gemm(ctx(), args).message(), "Fp8Gemm: weight_scale.dim(1) = 1, want 2");
  args = t.Args();
  args.bias = args.weight_scale.Rows(0, 1);
  EXPECT_EQ(Fp8Gemm(ctx(), args).message(), "Fp8Gemm: bias has rank 2, want 1");
  args = t.Args();
  args.residual = args.y.Rows(0, 2);
  EXPECT_EQ(Fp8Gemm(ctx(), args).message(), "Fp8Gemm: residual.dim(0) = 2, want 3");
  args = t.Args();
  args.scales = Fp8GemmScales::kVectors;
  EXPECT_EQ(Fp8Gemm(ctx(), args).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GemmTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

Fp8GemmArgs Shaped(int64_t tokens, int64_t inputs, int64_t outputs) {
  const auto view = [](DType dtype, std::initializer_list<int64_t> shape) {
    return TensorView::Of(nullptr, dtype, shape, DeviceType::kCuda);
  };
  return {.x = view(DType::kU8, {tokens, inputs}),
          .x_scale = view(DType::kF32, {(inputs + 127) / 128, tokens}),
          .weight = view(DType::kU8, {outputs, inputs}),
          .weight_scale = view(DType::kF32, {(outputs + 127) / 128, (inputs + 127) / 128}),
          .y = view(DType::kBF16, {tokens, outputs}),
          .flags = {}};
}

TEST(ChooseFp8GemmTest, ByTokensAlignmentAndDevice) {
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 256, 64), 90), Fp8GemmKernel::kSplit);
  Fp8GemmArgs vectors = Shaped(8, 256, 64);
  vectors.scales = Fp8GemmScales::kVectors;
  EXPECT_EQ(ChooseFp8Gemm(vectors, 90), Fp8GemmKernel::kRing);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 256, 64), 89), Fp8GemmKernel::kSkinny);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 2048, 7168), 90), Fp8GemmKernel::kRing);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(12, 2048, 7168), 90), Fp8GemmKernel::kSplit);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 1536, 24576), 90), Fp8GemmKernel::kSplit);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 2048, 2112), 90), Fp8GemmKernel::kSplit);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 7168, 4096), 90), Fp8GemmKernel::kRing);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 256, 64), 80), Fp8GemmKernel::kMma);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(8, 272, 64), 89), Fp8GemmKernel::kMma);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(32, 256, 64), 90), Fp8GemmKernel::kSplit);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(36, 256, 64), 90), Fp8GemmKernel::kM64);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(64, 256, 64), 90), Fp8GemmKernel::kM64);
  vectors = Shaped(64, 256, 64);
  vectors.scales = Fp8GemmScales::kVectors;
  EXPECT_EQ(ChooseFp8Gemm(vectors, 90), Fp8GemmKernel::kSplit);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(68, 256, 64), 90), Fp8GemmKernel::kFew);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(128, 256, 64), 90), Fp8GemmKernel::kFew);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(132, 256, 64), 90), Fp8GemmKernel::kTiles);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(132, 256, 64), 89), Fp8GemmKernel::kMma);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(132, 256, 64), 75), Fp8GemmKernel::kGeneric);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(132, 264, 64), 90), Fp8GemmKernel::kGeneric);
  EXPECT_EQ(ChooseFp8Gemm(Shaped(130, 256, 64), 90), Fp8GemmKernel::kMma);
  Fp8GemmArgs one_scale_row = Shaped(130, 128, 64);
  EXPECT_EQ(ChooseFp8Gemm(one_scale_row, 90), Fp8GemmKernel::kTiles);
}

TEST(ChooseFp8GemmTest, TilesOfTestsWithSeveral) {
  const auto cut = [](int64_t tokens, int64_t inputs, int64_t outputs) {
    const Fp8GemmTileCut c = CutFp8GemmTiles(Shaped(tokens, inputs, outputs), 132);
    return std::make_pair(c.narrow, c.mixed);
  };
  EXPECT_EQ(cut(513, 272, 10248), std::make_pair(false, 0));
  EXPECT_EQ(cut(520, 144, 13896), std::make_pair(true, 0));
  EXPECT_EQ(cut(774, 1040, 4616), std::make_pair(true, 192));
  EXPECT_EQ(cut(774, 272, 11304), std::make_pair(false, 256));
  // Mixed where y allows, and else wide.
  EXPECT_EQ(cut(256, 4096, 28672), std::make_pair(false, 192));
}

// Wide tiles are whole rounds, and lie in y.
TEST(ChooseFp8GemmTest, MixedTilesFillRounds) {
  for (int64_t tokens = 130; tokens < 4200; tokens += 61) {
    for (int64_t outputs = 1024; outputs < 20000; outputs += 72) {
      const Fp8GemmTileCut c = CutFp8GemmTiles(Shaped(tokens, 2048, outputs), 132);
      if (c.mixed == 0) continue;
      const int64_t rows = (tokens + 127) / 128;
      ASSERT_TRUE(0 <= c.turn && c.turn <= rows);
      EXPECT_EQ((c.turn * c.wide[0] + (rows - c.turn) * c.wide[1]) % 132, 0);
      for (int64_t wide : c.wide) EXPECT_TRUE(0 <= wide && wide * c.mixed <= outputs);
    }
  }
  const auto served = [](int64_t inputs, int64_t outputs) {
    const Fp8GemmTileCut c = CutFp8GemmTiles(Shaped(4096, inputs, outputs), 132);
    return std::make_tuple(c.mixed, c.turn, c.wide[0], c.wide[1]);
  };
  EXPECT_EQ(served(7168, 2112), std::make_tuple(192, 20, 9, 7));
  EXPECT_EQ(served(1536, 24576), std::make_tuple(256, 28, 95, 94));
  EXPECT_EQ(served(512, 32768), std::make_tuple(256, 28, 128, 127));
  EXPECT_EQ(served(7168, 4096), std::make_tuple(0, 0, 0, 0));
}

// The winners measured on an H200 (tiles.md).
TEST(ChooseFp8GemmTest, NarrowTilesWhereTheyWon) {
  for (const Fp8GemmServed& s : kFp8GemmServed) {
    const bool won = s.outputs == 2112;
    EXPECT_EQ(CutFp8GemmTiles(Shaped(4096, s.inputs, s.outputs), 132).narrow, won) << s.outputs;
  }
}

TEST(ChooseFp8GemmTest, SplitsFillTheMultiprocessorsOnce) {
  const auto cut = [](int64_t tokens, int64_t inputs, int64_t outputs) {
    const Fp8GemmCut c = CutFp8Gemm(Shaped(tokens, inputs, outputs), 132);
    return std::make_pair(c.narrow, c.splits);
  };
  EXPECT_EQ(cut(8, 7168, 2112), std::make_pair(false, 8));
  EXPECT_EQ(cut(16, 7168, 2112), std::make_pair(false, 8));
  EXPECT_EQ(cut(17, 7168, 2112), std::make_pair(true, 4));
  EXPECT_EQ(cut(8, 7168, 4096), std::make_pair(true, 2));
  EXPECT_EQ(cut(16, 2048, 7168), std::make_pair(false, 2));
  EXPECT_EQ(cut(17, 2048, 7168), std::make_pair(true, 1));
  EXPECT_EQ(cut(64, 7168, 4096), std::make_pair(true, 2));
  EXPECT_EQ(cut(64, 16384, 7168), std::make_pair(false, 2));
  EXPECT_EQ(cut(64, 1536, 24576), std::make_pair(false, 1));
  EXPECT_EQ(cut(8, 512, 256), std::make_pair(false, 1));  // too few inputs to share
}

TEST(ChooseFp8GemmTest, GroupsFillTheMultiprocessorsOnce) {
  const auto groups = [](int64_t inputs, int64_t outputs) {
    const Fp8GemmGroups g = GroupFp8Gemm(Shaped(64, inputs, outputs), 132);
    EXPECT_LE(g.groups * g.splits, 140);
    EXPECT_GE(g.groups * (g.own * g.splits + 1) * (g.wide ? 128 : 64), outputs);
    return std::make_tuple(g.wide, g.splits, g.own, g.groups);
  };
  EXPECT_EQ(groups(7168, 2112), std::make_tuple(false, 4, 0, 33));
  EXPECT_EQ(groups(7168, 4096), std::make_tuple(false, 2, 0, 64));
  EXPECT_EQ(groups(2048, 7168), std::make_tuple(false, 1, 0, 112));
  EXPECT_EQ(groups(16384, 7168), std::make_tuple(true, 2, 0, 56));
  EXPECT_EQ(groups(1536, 24576), std::make_tuple(true, 2, 1, 64));
  EXPECT_EQ(groups(512, 32768), std::make_tuple(true, 1, 1, 128));
  EXPECT_EQ(groups(144, 54010), std::make_tuple(true, 1, 3, 106));
  EXPECT_EQ(groups(512, 256), std::make_tuple(false, 1, 0, 4));  // too few inputs to share
}

// Parts of a GPU, and other ones.
TEST(ChooseFp8GemmTest, CutsFitAnyNumberOfMultiprocessors) {
  for (int32_t multiprocessors : {1, 3, 7, 8, 16, 60, 114, 144}) {
    const int64_t most = multiprocessors + multiprocessors / 16;
    for (const Fp8GemmServed& s : kFp8GemmServed) {
      SCOPED_TRACE(std::to_string(s.outputs) + " on " + std::to_string(multiprocessors));
      const Fp8GemmArgs few = Shaped(64, s.inputs, s.outputs);
      const Fp8GemmGroups g = GroupFp8Gemm(few, multiprocessors);
      EXPECT_LE(g.groups * g.splits, most);
      EXPECT_LE(s.outputs, g.groups * (g.own * g.splits + 1) * (g.wide ? 128 : 64));
      const Fp8GemmCut cut = CutFp8Gemm(few, multiprocessors);
      const int64_t width = cut.narrow ? 64 : 128;
      EXPECT_TRUE(cut.splits == 1 || (s.outputs + width - 1) / width * cut.splits <= most);
      const Fp8GemmTileCut c = CutFp8GemmTiles(Shaped(4096, s.inputs, s.outputs), multiprocessors);
      EXPECT_EQ((c.turn * c.wide[0] + (32 - c.turn) * c.wide[1]) % multiprocessors, 0);
      EXPECT_LE(std::max(c.wide[0], c.wide[1]) * c.mixed, s.outputs);
    }
  }
}

}  // namespace
}  // namespace millrace
