#include "kernels/lowp/block_formats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

using Bytes = std::vector<uint8_t>;
using Floats = std::vector<float>;

// Magnitudes over many powers of two, a block of zeros, exact ties, subnormals, the largest bf16
// that is allowed.
Floats TestMatrix(MatrixShape shape, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Floats x(static_cast<size_t>(shape.rows * shape.cols));
  for (size_t i = 0; i < x.size(); ++i) {
    const int block = static_cast<int>(i / 16);
    x[i] = ToFloat(ToBFloat16(std::ldexp(normal(rng), block * 7 % 40 - 20)));
    if (block % 11 == 3) x[i] = 0;
    if (block % 11 == 5) x[i] = static_cast<float>(static_cast<int>(i % 29) - 14) / 4;
  }
  x[0] = std::ldexp(1.0f, -140);
  x[x.size() - 1] = ToFloat(BFloat16{0x7eff});
  return x;
}

double MaxIn(MatrixShape shape, const Floats& x, MatrixShape from, MatrixShape size) {
  double amax = 0;
  for (int64_t r = from.rows; r < std::min(shape.rows, from.rows + size.rows); ++r) {
    for (int64_t c = from.cols; c < std::min(shape.cols, from.cols + size.cols); ++c) {
      amax = std::max(amax,
                      std::fabs(static_cast<double>(x[static_cast<size_t>(r * shape.cols + c)])));
    }
  }
  return amax;
}

// 2^ceil(log2(x)) by trial, not below 2^-126, which is what a block of zeros gets.
int PowerAtLeast(double x) {
  int exponent = -126;
  while (std::ldexp(1.0, exponent) < x) ++exponent;
  return exponent;
}

// The FP4 code of x for a block whose unit is down / up; sums and divisions play no part.
int Fp4Code(double x, double up, double down) {
  constexpr double kTies[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  int code = 0;
  for (int i = 0; i < 7; ++i) {
    const double scaled = std::fabs(x) * up;
    code += i % 2 == 0 ? scaled > kTies[i] * down : scaled >= kTies[i] * down;
  }
  return std::signbit(x) ? code + 8 : code;
}

int Nibble(const Bytes& packed, size_t i) { return packed[i / 2] >> (i % 2 * 4) & 0xf; }

class Fp8Test : public ::testing::TestWithParam<MatrixShape> {};

TEST_P(Fp8Test, ScalesAndCodes) {
  const MatrixShape shape = GetParam();
  const MatrixShape scale_shape = Fp8ScaleShape(shape);
  ASSERT_EQ(scale_shape.rows, (shape.rows + 127) / 128);
  ASSERT_EQ(scale_shape.cols, (shape.cols + 127) / 128);
  const Floats x = TestMatrix(shape, 1);
  Bytes codes(x.size()), codes_e8m0(x.size());
  const auto num_scales = static_cast<size_t>(scale_shape.rows * scale_shape.cols);
  Floats scales(num_scales), back(x.size()), back_e8m0(x.size());
  Bytes scales_e8m0(num_scales);
  QuantizeFp8(shape, x, absl::MakeSpan(codes), absl::MakeSpan(scales));
  QuantizeFp8(shape, x, absl::MakeSpan(codes_e8m0), absl::MakeSpan(scales_e8m0));
  DequantizeFp8(shape, codes, scales, absl::MakeSpan(back));
  DequantizeFp8(shape, codes_e8m0, scales_e8m0, absl::MakeSpan(back_e8m0));
  std::vector<double> tile_amax;
  for (int64_t r = 0; r < shape.rows; r += 128) {
    for (int64_t c = 0; c < shape.cols; c += 128) {
      tile_amax.push_back(MaxIn(shape, x, {r, c}, {128, 128}));
    }
  }
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      const auto i = static_cast<size_t>(r * shape.cols + c);
      const auto tile = static_cast<size_t>(r / 128 * scale_shape.cols + c / 128);
      const double amax = tile_amax[tile];
      ASSERT_EQ(scales[tile], static_cast<float>(amax / 448));
      ASSERT_EQ(scales_e8m0[tile], PowerAtLeast(amax / 448) + 127);
      // The nearest value: no neighbouring code is nearer. Half a step of the top binade at most.
      const auto value = static_cast<double>(x[i]);
      const double power = std::ldexp(1.0, scales_e8m0[tile] - 127);
      ASSERT_EQ(codes[i], EncodeE4M3(value / static_cast<double>(scales[tile])));
      ASSERT_EQ(codes_e8m0[i], EncodeE4M3(value / power));
      ASSERT_EQ(back[i], kE4M3Values[codes[i]] * scales[tile]);
      ASSERT_EQ(back_e8m0[i], kE4M3Values[codes_e8m0[i]] * static_cast<float>(power));
      ASSERT_LE(std::fabs(static_cast<double>(back_e8m0[i]) - value), 16 * power);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Fp8Test,
                         ::testing::Values(MatrixShape{1, 1}, MatrixShape{3, 200},
                                           MatrixShape{128, 128}, MatrixShape{130, 257}));

TEST(Fp8, RowsHaveScalesOfTheirOwn) {
  const MatrixShape shape = {5, 147};
  const Floats x = TestMatrix(shape, 3);
  Bytes codes(x.size());
  Floats scales(5), restored(x.size());
  QuantizeFp8Rows(shape, x, absl::MakeSpan(codes), absl::MakeSpan(scales));
  for (int64_t row = 0; row < shape.rows; ++row) {
    const double amax = MaxIn(shape, x, {row, 0}, {1, shape.cols});
    const auto scale = static_cast<float>(amax / 448);
    ASSERT_EQ(scales[static_cast<size_t>(row)], scale);
    const auto first = static_cast<size_t>(row * shape.cols),
               cols = static_cast<size_t>(shape.cols);
    const Bytes part(codes.begin() + row * shape.cols, codes.begin() + (row + 1) * shape.cols);
    Bytes again(cols);
    QuantizeFp8(absl::MakeConstSpan(x).subspan(first, cols), Fp8ScaleOf(static_cast<float>(amax)),
                absl::MakeSpan(again));
    EXPECT_EQ(again, part);
    DequantizeFp8(part, scale, absl::MakeSpan(restored).subspan(first, cols));
    for (size_t i = first; i < first + cols; ++i) {
      ASSERT_EQ(codes[i], EncodeE4M3(static_cast<double>(x[i]) / static_cast<double>(scale)));
      ASSERT_EQ(restored[i], kE4M3Values[codes[i]] * scale);
    }
  }
}

TEST(Fp8, ZerosGetTheSmallestNormalScale) {
  const Floats x(4, 0.0f);
  Bytes codes(4), e8m0(1);
  Floats scale(1);
  QuantizeFp8({2, 2}, x, absl::MakeSpan(codes), absl::MakeSpan(scale));
  EXPECT_EQ(scale[0], std::numeric_limits<float>::min());
  QuantizeFp8({2, 2}, x, absl::MakeSpan(codes), absl::MakeSpan(e8m0));
  EXPECT_EQ(e8m0[0], 1);
  EXPECT_EQ(codes, Bytes(4, 0));
}

TEST(Mxfp4, ScalesCodesAndOrder) {
  for (const MatrixShape shape : {MatrixShape{1, 32}, MatrixShape{5, 96}}) {
    const Floats x = TestMatrix(shape, 2);
    Bytes packed(x.size() / 2), scales(x.size() / 32);
    Floats back(x.size());
    QuantizeMxfp4(shape, x, absl::MakeSpan(packed), absl::MakeSpan(scales));
    DequantizeMxfp4(shape, packed, scales, absl::MakeSpan(back));
    for (size_t i = 0; i < x.size(); ++i) {
      const auto first = static_cast<int64_t>(i / 32 * 32);
      const double amax = MaxIn({1, static_cast<int64_t>(x.size())}, x, {0, first}, {1, 32});
      const int exponent = PowerAtLeast(amax / 6);
      ASSERT_EQ(scales[i / 32], exponent + 127);
      const auto value = static_cast<double>(x[i]);
      ASSERT_EQ(Nibble(packed, i), Fp4Code(value, 1, std::ldexp(1.0, exponent))) << i;
      ASSERT_EQ(back[i], std::ldexp(kE2M1Values[Nibble(packed, i)], exponent)) << i;
      ASSERT_LE(std::fabs(static_cast<double>(back[i]) - value), std::ldexp(1.0, exponent));
    }
  }
}

TEST(Mxfp4, EvenColumnsInTheLowNibble) {
  Floats x(32, 0.0f);
  x[0] = 6;
  x[1] = -1;
  x[31] = 0.5f;
  Bytes packed(16), scales(1);
  QuantizeMxfp4({1, 32}, x, absl::MakeSpan(packed), absl::MakeSpan(scales));
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(packed[0], 0xa7);
  EXPECT_EQ(packed[15], 0x10);
}

TEST(Nvfp4, ScalesAndCodesOfBothGlobals) {
  for (const bool reciprocal : {false, true}) {
    const MatrixShape shape = {7, 48};
    Floats x = TestMatrix(shape, 3);
    x.back() = 3.25f;
    const float amax = FiniteAmax(x);
    const Nvfp4Global global = Nvfp4GlobalOf(amax, reciprocal);
    const double exact = static_cast<double>(amax) / 2688;
    EXPECT_EQ(global.stored, static_cast<float>(reciprocal ? 1 / exact : exact));
    const auto stored = static_cast<double>(global.stored);
    const double up = reciprocal ? stored : 1;
    const double down = reciprocal ? 1 : stored;
    Bytes packed(x.size() / 2), scales(x.size() / 16);
    Floats back(x.size());
    QuantizeNvfp4(shape, x, global, absl::MakeSpan(packed), absl::MakeSpan(scales));
    DequantizeNvfp4(shape, packed, scales, global, absl::MakeSpan(back));
    for (size_t i = 0; i < x.size(); ++i) {
      const auto first = static_cast<int64_t>(i / 16 * 16);
      const double block = MaxIn({1, static_cast<int64_t>(x.size())}, x, {0, first}, {1, 16});
      const double wanted = block * up / (6 * down);
      const uint8_t want_scale =
          block == 0 ? uint8_t{0x38} : std::max(EncodeE4M3(wanted), uint8_t{1});
      ASSERT_EQ(scales[i / 16], want_scale) << i;
      const auto scale = static_cast<double>(kE4M3Values[want_scale]);
      ASSERT_EQ(Nibble(packed, i), Fp4Code(static_cast<double>(x[i]), up, scale * down)) << i;
      const double value = static_cast<double>(kE2M1Values[Nibble(packed, i)]) * scale;
      ASSERT_EQ(back[i], static_cast<float>(value * down / up)) << i;
    }
  }
}

// Floats on and beside a tie under a global scale that is no power of two.
TEST(Nvfp4, TiesUnderAnOddGlobal) {
  for (const bool reciprocal : {false, true}) {
    const Nvfp4Global global = {.stored = 3.0f, .reciprocal = reciprocal};
    const double unit = reciprocal ? 1.0 / 3 : 3.0;
    Floats x(16, 0.0f);
    x[0] = static_cast<float>(6 * unit);  // makes the scale of the block 1
    const auto tie = static_cast<float>(0.75 * unit);
    x[1] = tie;
    x[2] = std::nextafter(tie, 0.0f);
    x[3] = std::nextafter(tie, 9.0f);
    Bytes packed(8), scales(1);
    QuantizeNvfp4({1, 16}, x, global, absl::MakeSpan(packed), absl::MakeSpan(scales));
    EXPECT_EQ(scales[0], 0x38);
    EXPECT_EQ(Nibble(packed, 1), 2);
    EXPECT_EQ(Nibble(packed, 2), 1);
    EXPECT_EQ(Nibble(packed, 3), 2);
  }
}

TEST(Nvfp4, ZerosAndTinyBlocks) {
  Floats x(32, 0.0f);
  x[16] = 1e-6f;
  const Nvfp4Global global = Nvfp4GlobalOf(2688, false);
  EXPECT_EQ(global.stored, 1);
  Bytes packed(16), scales(2);
  QuantizeNvfp4({2, 16}, x, global, absl::MakeSpan(packed), absl::MakeSpan(scales));
  EXPECT_EQ(scales[0], 0x38);
  EXPECT_EQ(scales[1], 1);
  EXPECT_EQ(packed, Bytes(16, 0));
  EXPECT_EQ(Nvfp4GlobalOf(0, false).stored, std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(Nvfp4GlobalOf(0, true).stored));
}

TEST(FiniteAmax, SeesWhatIsNotFinite) {
  EXPECT_EQ(FiniteAmax({}), 0);
  EXPECT_EQ(FiniteAmax({-3.0f, 2.0f}), 3);
  EXPECT_EQ(FiniteAmax({1.0f, -std::numeric_limits<float>::infinity()}),
            std::numeric_limits<float>::infinity());
  EXPECT_EQ(FiniteAmax({1.0f, -std::numeric_limits<float>::quiet_NaN(), 2.0f}),
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace millrace
