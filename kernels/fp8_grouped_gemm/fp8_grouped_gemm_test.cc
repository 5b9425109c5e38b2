#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_cases.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"
#include "kernels/testing/fp8_sum.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

using Values = std::vector<double>;
using Case = Fp8GroupedGemmCase;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// What y holds before a call, exact in both of its types.
constexpr double kCanary = -12352;

constexpr Fp8GroupedRows kForms[] = {Fp8GroupedRows::kMasked, Fp8GroupedRows::kContiguous};

double At(const Values& values, int64_t i) { return values[static_cast<size_t>(i)]; }
int64_t RowsOf(const Case& c, int64_t group) { return c.rows[static_cast<size_t>(group % 6)]; }

// Where rows lie in x and y.
struct Layout {
  Layout(const Case& c, Fp8GroupedRows form) {
    const bool masked = form == Fp8GroupedRows::kMasked;
    int64_t places = 0;
    for (int64_t g = 0; g < c.groups; ++g) places = std::max(places, RowsOf(c, g) + c.spare);
    int64_t at = masked ? 0 : c.spare;
    for (int64_t g = 0; g < c.groups; ++g) {
      begin.push_back(masked ? g * places : at);
      at += RowsOf(c, g);
      end.push_back(begin.back() + RowsOf(c, g));
      numbers.push_back(static_cast<double>(masked ? RowsOf(c, g) : begin.back()));
    }
    if (!masked) numbers.push_back(static_cast<double>(at));
    total = masked ? c.groups * places : at + c.spare;
  }
  // -1: none.
  int64_t GroupOf(int64_t row) const {
    for (size_t g = 0; g < begin.size(); ++g) {
      if (begin[g] <= row && row < end[g]) return static_cast<int64_t>(g);
    }
    return -1;
  }

  std::vector<int64_t> begin, end;  // of groups
  Values numbers;                   // Fp8GroupedGemmArgs::rows
  int64_t total = 0;
};

struct Tensors {
  Tensors(Device& device, const Case& c, Fp8GroupedRows f, DType y_dtype)
      : form(f),
        layout(c, f),
        depth((c.inputs + 127) / 128),
        x(device, DType::kU8, {layout.total, c.inputs}, c.padding),
        x_scale(device, DType::kF32, {depth, layout.total}, ScalePadding(c)),
        weight(device, DType::kU8, {c.groups, c.outputs, c.inputs}, c.padding),
        weight_scale(device, DType::kF32, {c.groups, (c.outputs + 127) / 128, depth}, c.padding),
        rows(device, DType::kI32, {static_cast<int64_t>(layout.numbers.size())}),
        y(device, y_dtype, {layout.total, c.outputs}, c.padding) {
    TestRng rng(static_cast<uint64_t>(c.groups * 7919 + c.inputs * 31 + c.outputs));
    SetCodes(x, rng);
    SetCodes(weight, rng);
    x_scale.SetUniform(rng, 0.5, 2);
    weight_scale.SetUniform(rng, 0.001, 0.01);
    rows.Set(layout.numbers);
    SpoilSpareRows(c);
    y.SetAll(kCanary);
  }

  // Of cases whose rows of x lie on 16 bytes, those of scales are to as well.
  int64_t ScalePadding(const Case& c) const {
    return c.inputs % 16 == 0 ? 3 - (layout.total + 3) % 4 : c.scale_padding;
  }

  // NaN in rows that are no group's.
  void SpoilSpareRows(const Case& c) {
    Values codes = x.Get(), scales = x_scale.Get();
    for (int64_t row = 0; row < layout.total; ++row) {
      if (layout.GroupOf(row) >= 0) continue;
      for (int64_t k = 0; k < c.inputs; ++k) codes[static_cast<size_t>(row * c.inputs + k)] = 0x7f;
      for (int64_t k = 0; k < depth; ++k) {
        scales[static_cast<size_t>(k * layout.total + row)] = kNan;
      }
    }
    x.Set(codes);
    x_scale.Set(scales);
  }

  Fp8GroupedGemmArgs Args(int64_t expected_rows = 0) const {
    return {.x = x.view(),
            .x_scale = x_scale.view(),
            .weight = weight.view(),
            .weight_scale = weight_scale.view(),
            .rows = rows.view(),
            .y = y.view(),
            .form = form,
            .expected_rows = expected_rows};
  }

  void ExpectGuardsIntact() const {
    for (const GuardedTensor* t : {&x, &x_scale, &weight, &weight_scale, &rows, &y}) {
      EXPECT_TRUE(t->GuardsIntact());
    }
  }

  Fp8GroupedRows form;
  Layout layout;
  int64_t depth;
  GuardedTensor x, x_scale, weight, weight_scale, rows, y;
};

// All of y. `cuts`: as of Fp8BlockSum.
Fp8Sums Oracle(const Tensors& t, const Case& c, bool cuts) {
  const Values x = DecodeE4M3(t.x.Get()), weight = DecodeE4M3(t.weight.Get());
  const Values x_scale = t.x_scale.Get(), weight_scale = t.weight_scale.Get();
  Fp8Sums sums;
  for (int64_t m = 0; m < t.layout.total; ++m) {
    const int64_t group = t.layout.GroupOf(m);
    for (int64_t n = 0; n < c.outputs; ++n) {
      if (group < 0) {
        sums.push_back({.value = kCanary});
        continue;
      }
      Fp8Element element;
      for (int64_t b = 0; b < t.depth; ++b) {
        Fp8BlockSum sum(cuts);
        for (int64_t k = b * 128; k < std::min(b * 128 + 128, c.inputs); ++k) {
          sum.Add(At(x, m * c.inputs + k), At(weight, (group * c.outputs + n) * c.inputs + k));
        }
        sum.EndGroup();
        const int64_t scale_row = group * ((c.outputs + 127) / 128) + n / 128;
        element.Add(
            sum, At(x_scale, b * t.layout.total + m) * At(weight_scale, scale_row * t.depth + b));
      }
      sums.push_back(element);
    }
  }
  return sums;
}

class Fp8GroupedGemmTest : public OpTest {
 protected:
  bool gpu() { return device().type() == DeviceType::kCuda; }
  // Every kernel and width of the GPU; the CPU does not care.
  std::vector<int64_t> Expectations() {
    if (!gpu()) return {0};
    return {0, 1, 12, 20, 40, 64, 1000};
  }
};

TEST_P(Fp8GroupedGemmTest, AgreesWithTheDefinition) {
  for (const Case& c : kFp8GroupedGemmCases) {
    for (Fp8GroupedRows form : kForms) {
      for (DType dtype : {DType::kF32, DType::kBF16}) {
        const bool large = c.inputs * c.outputs * c.rows[0] > 4'000'000;
        if (large && dtype == DType::kF32) continue;
        Tensors t(device(), c, form, dtype);
        const Fp8Sums expected = Oracle(t, c, gpu());
        for (int64_t expected_rows : Expectations()) {
          SCOPED_TRACE(std::to_string(c.groups) + " groups " + std::to_string(c.inputs) + " x " +
                       std::to_string(c.outputs) + " form " +
                       std::to_string(static_cast<int>(form)) + " expecting " +
                       std::to_string(expected_rows));
          t.y.SetAll(kCanary);
          ASSERT_EQ(Fp8GroupedGemm(ctx(), t.Args(expected_rows)), absl::OkStatus());
          ExpectFp8Close(t.y.Get(), expected, dtype);
          t.ExpectGuardsIntact();
        }
      }
    }
  }
}

// A group's rows by themselves, and its first row alone, have the bits that they have among others.
TEST_P(Fp8GroupedGemmTest, RowsDoNotDependOnOthers) {
  const Case c = {6, {3, 70, 0, 40, 1, 130}, 400, 264, 2, 0, 0};
  for (Fp8GroupedRows form : kForms) {
    for (int64_t expected_rows : Expectations()) {
      Tensors t(device(), c, form, DType::kF32);
      ASSERT_TRUE(Fp8GroupedGemm(ctx(), t.Args(expected_rows)).ok());
      const Values all = t.y.Get();
      for (int64_t group : {1, 4, 5}) {
        for (int64_t count : {RowsOf(c, group), int64_t{1}}) {
          const auto begin = t.layout.begin[static_cast<size_t>(group)];
          Values numbers(t.layout.numbers.size(), 0.0);
          if (form == Fp8GroupedRows::kMasked) {
            numbers[static_cast<size_t>(group)] = static_cast<double>(count);
          } else {
            for (size_t g = 0; g < numbers.size(); ++g) {
              const bool after = static_cast<int64_t>(g) > group;
              numbers[g] = static_cast<double>(begin + (after ? count : 0));
            }
          }
          t.rows.Set(numbers);
          t.y.SetAll(kCanary);
          ASSERT_TRUE(Fp8GroupedGemm(ctx(), t.Args(expected_rows)).ok());
          const Values alone = t.y.Get();
          for (int64_t i = 0; i < t.y.size(); ++i) {
            const int64_t row = i / c.outputs;
            const bool counts = begin <= row && row < begin + count;
            ASSERT_EQ(At(alone, i), counts ? At(all, i) : kCanary) << "row " << row;
          }
        }
      }
    }
  }
}

// Products of either sign, and of one, whose sums take the more bits the more inputs there are.
TEST_P(Fp8GroupedGemmTest, ErrorDoesNotGrowWithInputs) {
  const Case c = {3, {2, 66, 9}, 16384, 24, 0, 0, 0};
  for (Fp8GroupedRows form : kForms) {
    Tensors t(device(), c, form, DType::kF32);
    for (bool one_sign : {false, true}) {
      if (one_sign) {
        for (GuardedTensor* codes : {&t.x, &t.weight}) {
          Values values = codes->Get();
          for (double& code : values) code = std::fmod(code, 128);
          codes->Set(values);
        }
      }
      const Fp8Sums expected = Oracle(t, c, gpu());
      for (int64_t expected_rows : Expectations()) {
        SCOPED_TRACE("expecting " + std::to_string(expected_rows));
        t.y.SetAll(kCanary);
        ASSERT_EQ(Fp8GroupedGemm(ctx(), t.Args(expected_rows)), absl::OkStatus());
        if (one_sign) {
          ExpectFp8Within(t.y.Get(), expected, DType::kF32);
        } else {
          ExpectFp8Close(t.y.Get(), expected, DType::kF32);
        }
      }
    }
  }
}

// Either NaN, in x and in a group's weight, reaches its row, its column of the group's rows, and
// nothing else. Of rows on 16 bytes and off.
TEST_P(Fp8GroupedGemmTest, NanStaysWhereItIs) {
  const auto expect = [&](const Case& c, Fp8GroupedRows form, double of_x, double of_weight) {
    constexpr int64_t kGroup = 2, kOutput = 129;
    Tensors t(device(), c, form, DType::kF32);
    const int64_t row = t.layout.end[1] - 1;
    Values x = t.x.Get(), weight = t.weight.Get();
    x[static_cast<size_t>(row * c.inputs + 200)] = of_x;
    weight[static_cast<size_t>((kGroup * c.outputs + kOutput) * c.inputs + 383)] = of_weight;
    t.x.Set(x);
    t.weight.Set(weight);
    for (int64_t expected_rows : Expectations()) {
      SCOPED_TRACE("expecting " + std::to_string(expected_rows));
      t.y.SetAll(kCanary);
      ASSERT_EQ(Fp8GroupedGemm(ctx(), t.Args(expected_rows)), absl::OkStatus());
      const Values y = t.y.Get();
      for (int64_t i = 0; i < t.y.size(); ++i) {
        const int64_t m = i / c.outputs;
        const bool nan = m == row || (t.layout.GroupOf(m) == kGroup && i % c.outputs == kOutput);
        ASSERT_EQ(std::isnan(At(y, i)), nan) << i;
      }
    }
  };
  for (Fp8GroupedRows form : kForms) {
    expect({4, {3, 9, 70, 2}, 384, 136, 1, 0, 0}, form, 0x7f, 0xff);
    expect({4, {3, 9, 70, 2}, 384, 136, 1, 0, 0}, form, 0xff, 0x7f);
    expect({4, {3, 9, 70, 2}, 384, 136, 1, 1, 0}, form, 0x7f, 0x7f);
  }
}

TEST_P(Fp8GroupedGemmTest, NumbersOutOfRangeAreCutToFit) {
  const Case c = {4, {3, 9, 5, 2}, 144, 40, 0, 0, 0};
  for (int64_t expected_rows : Expectations()) {
    Tensors masked(device(), c, Fp8GroupedRows::kMasked, DType::kF32);
    masked.rows.Set({9, 9, 9, 0});
    ASSERT_TRUE(Fp8GroupedGemm(ctx(), masked.Args(expected_rows)).ok());
    Values want = masked.y.Get();
    masked.y.SetAll(kCanary);
    masked.rows.Set({10, 1 << 30, 9, -5});
    ASSERT_TRUE(Fp8GroupedGemm(ctx(), masked.Args(expected_rows)).ok());
    for (size_t i = 0; i < want.size(); ++i) {
      const double y = masked.y.Get()[i];
      ASSERT_TRUE(y == want[i] || (std::isnan(y) && std::isnan(want[i])));
    }
    masked.ExpectGuardsIntact();

    Tensors sorted(device(), c, Fp8GroupedRows::kContiguous, DType::kF32);
    sorted.rows.Set({0, 0, 12, 19, 19});
    ASSERT_TRUE(Fp8GroupedGemm(ctx(), sorted.Args(expected_rows)).ok());
    want = sorted.y.Get();
    sorted.y.SetAll(kCanary);
    sorted.rows.Set({-7, -2, 12, 1 << 30, 25});
    ASSERT_TRUE(Fp8GroupedGemm(ctx(), sorted.Args(expected_rows)).ok());
    EXPECT_EQ(sorted.y.Get(), want);
    sorted.ExpectGuardsIntact();
  }
}

TEST_P(Fp8GroupedGemmTest, NoInputsGiveZeros) {
  const Case c = {3, {2, 0, 1}, 0, 5, 1, 0, 0};
  for (Fp8GroupedRows form : kForms) {
    Tensors t(device(), c, form, DType::kF32);
    ASSERT_EQ(Fp8GroupedGemm(ctx(), t.Args()), absl::OkStatus());
    const Values y = t.y.Get();
    for (int64_t i = 0; i < t.y.size(); ++i) {
      EXPECT_EQ(At(y, i), t.layout.GroupOf(i / c.outputs) >= 0 ? 0 : kCanary) << i;
    }
  }
}

TEST_P(Fp8GroupedGemmTest, RefusesWhatDoesNotFit) {
  const Case c = {3, {2, 1, 4}, 144, 9, 0, 0, 0};
  const Tensors t(device(), c, Fp8GroupedRows::kMasked, DType::kF32);
  const auto message = [&](const Fp8GroupedGemmArgs& args) {
    return std::string(Fp8GroupedGemm(ctx(), args).message());
  };
  Fp8GroupedGemmArgs args = t.Args();
  args.form = Fp8GroupedRows::kContiguous;
  EXPECT_EQ(message(args), "Fp8GroupedGemm: rows.dim(0) = 3, want 4");
  args = t.Args();
  args.weight_scale = args.weight_scale.Rows(0, 2);
  EXPECT_EQ(message(args), "Fp8GroupedGemm: weight_scale.dim(0) = 2, want 3");
  args = t.Args();
  args.x_scale = args.x_scale.Cols(0, 11);
  EXPECT_EQ(message(args), "Fp8GroupedGemm: x_scale.dim(1) = 11, want 12");
  args = t.Args();
  args.x = args.x.Rows(0, 11);
  args.y = args.y.Rows(0, 11);
  args.x_scale = args.x_scale.Cols(0, 11);
  EXPECT_EQ(message(args), "Fp8GroupedGemm: masked: x.dim(0) must be a multiple of weight.dim(0)");
  args = t.Args(-1);
  EXPECT_EQ(message(args), "Fp8GroupedGemm: expected_rows is negative");
}

INSTANTIATE_TEST_SUITE_P(Devices, Fp8GroupedGemmTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

Fp8GroupedGemmArgs Shaped(int64_t tokens, int64_t groups, int64_t inputs, int64_t expected_rows) {
  const auto view = [](DType dtype, std::initializer_list<int64_t> shape) {
    return TensorView::Of(nullptr, dtype, shape, DeviceType::kCuda);
  };
  const int64_t depth = (inputs + 127) / 128;
  return {.x = view(DType::kU8, {tokens, inputs}),
          .x_scale = view(DType::kF32, {depth, tokens}),
          .weight = view(DType::kU8, {groups, 64, inputs}),
          .weight_scale = view(DType::kF32, {groups, 1, depth}),
          .rows = view(DType::kI32, {groups}),
          .y = view(DType::kBF16, {tokens, 64}),
          .form = Fp8GroupedRows::kMasked,
          .expected_rows = expected_rows};
}

TEST(ChooseFp8GroupedGemmTest, ByExpectedRowsAlignmentAndDevice) {
  using Kernel = Fp8GroupedGemmKernel;
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(256, 8, 256, 0), 90), Kernel::kFew);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(2048, 8, 256, 0), 90), Kernel::kTiles);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(2048, 8, 256, 20), 90), Kernel::kFew);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(256, 8, 256, 200), 90), Kernel::kTiles);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(256, 8, 256, 0), 80), Kernel::kGeneric);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(256, 8, 264, 0), 90), Kernel::kGeneric);
  EXPECT_EQ(ChooseFp8GroupedGemm(Shaped(254, 2, 256, 0), 90), Kernel::kGeneric);
  Fp8GroupedGemmArgs apart = Shaped(256, 8, 256, 0);
  apart.weight.strides[0] += 16;  // no whole row
  EXPECT_EQ(ChooseFp8GroupedGemm(apart, 90), Kernel::kGeneric);
  apart.weight.strides[0] += 240;
  EXPECT_EQ(ChooseFp8GroupedGemm(apart, 90), Kernel::kFew);
}

}  // namespace
}  // namespace millrace
