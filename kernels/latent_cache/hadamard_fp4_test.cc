#include "kernels/latent_cache/hadamard_fp4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "kernels/testing/test_rng.h"

namespace millrace {
namespace {

std::vector<float> Row(int64_t dim, uint64_t seed, double scale = 1) {
  TestRng rng(seed);
  std::vector<float> row;
  for (int64_t i = 0; i < dim; ++i) row.push_back(static_cast<float>(rng.Normal() * scale));
  return row;
}

std::vector<float> Applied(std::vector<float> row) {
  ApplyHadamardFp4(row.data(), static_cast<int64_t>(row.size()));
  return row;
}

// Entry (i, j) of the matrix in natural order is -1 to the number of ones that i and j share.
double Transformed(const std::vector<float>& row, size_t i) {
  double sum = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    sum += (std::popcount(i & j) % 2 == 0 ? 1.0 : -1.0) * row[j];
  }
  return sum / std::sqrt(static_cast<double>(row.size()));
}

double Nearest(double x) {
  double best = 0;
  for (double v : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) {
    for (double sign : {1.0, -1.0}) {
      if (std::abs(x - sign * v) < std::abs(x - best)) best = sign * v;
    }
  }
  return best;
}

TEST(HadamardFp4Test, EachBlockIsRoundedToItsScale) {
  for (int64_t dim : {32, 64, 128, 512, 1024}) {
    for (double scale : {1e-3, 1.0, 300.0}) {
      const std::vector<float> row = Row(dim, static_cast<uint64_t>(dim), scale);
      const std::vector<float> got = Applied(row);
      for (size_t begin = 0; begin < row.size(); begin += 32) {
        std::vector<double> want;
        double amax = 0;
        for (size_t i = begin; i < begin + 32; ++i) {
          want.push_back(Transformed(row, i));
          amax = std::max(amax, std::abs(want.back()));
        }
        const double unit = std::exp2(std::ceil(std::log2(amax / 6)));
        for (size_t i = 0; i < 32; ++i) {
          const double x = want[i] / unit;
          // A step below the bf16 rounding, which may move a value across the middle of two codes.
          if (std::abs(Nearest(x * 1.005) - Nearest(x * 0.995)) > 0) continue;
          EXPECT_EQ(got[begin + i], Nearest(x) * unit) << dim << " " << begin + i << " " << x;
        }
      }
    }
  }
}

TEST(HadamardFp4Test, AnExactCase) {
  std::vector<float> row(32, 0.0f);
  row[0] = std::sqrt(32.0f);  // -> all ones
  EXPECT_EQ(Applied(row), std::vector<float>(32, 1.0f));
  // All equal -> one channel; 6 needs scale 1 and is kept, 6.5 rounds to 6 at scale 2.
  EXPECT_EQ(Applied(std::vector<float>(32, 6 / std::sqrt(32.0f)))[0], 6.0f);
  EXPECT_EQ(Applied(std::vector<float>(32, 6.5f / std::sqrt(32.0f)))[0], 6.0f);
  EXPECT_EQ(Applied(std::vector<float>(32, 7.5f / std::sqrt(32.0f)))[0], 8.0f);
}

TEST(HadamardFp4Test, ResultsAreBf16ValuesAndZerosStay) {
  for (float x : Applied(Row(128, 5, 1e-30))) EXPECT_EQ(ToFloat(ToBFloat16(x)), x);
  EXPECT_EQ(Applied(std::vector<float>(64, 0.0f)), std::vector<float>(64, 0.0f));
}

TEST(HadamardFp4Test, NanSpreads) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> row = Row(64, 3);
    row[17] = bad;
    for (float x : Applied(row)) EXPECT_TRUE(std::isnan(x));
  }
}

TEST(HadamardFp4Test, CoversPowersOfTwo) {
  for (int64_t dim : {32, 64, 128, 1024}) EXPECT_TRUE(HadamardFp4Covers(dim));
  for (int64_t dim : {0, 16, 48, 96, 2048, -32}) EXPECT_FALSE(HadamardFp4Covers(dim));
}

}  // namespace
}  // namespace millrace
