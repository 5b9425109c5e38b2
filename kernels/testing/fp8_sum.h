// For tests of FP8 products: codes by their definition, and what tensor cores may lose.
#ifndef KERNELS_TESTING_FP8_SUM_H_
#define KERNELS_TESTING_FP8_SUM_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/dtype.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/test_rng.h"

namespace millrace {

// The value of an E4M3 code.
inline double DecodeE4M3(double code) {
  const int bits = static_cast<int>(code) & 0x7f;
  const int exponent = bits >> 3, mantissa = bits & 7;
  const double magnitude = bits == 0x7f    ? std::numeric_limits<double>::quiet_NaN()
                           : exponent == 0 ? std::ldexp(mantissa, -9)
                                           : std::ldexp(8 + mantissa, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

inline std::vector<double> DecodeE4M3(std::vector<double> codes) {
  for (double& code : codes) code = DecodeE4M3(code);
  return codes;
}

// Any code but NaN, so that magnitudes are spread over the whole range.
inline void SetCodes(GuardedTensor& t, TestRng& rng) {
  std::vector<double> codes;
  for (int64_t i = 0; i < t.size(); ++i) {
    codes.push_back(static_cast<double>(rng.Integer(0, 0x7e) + 128 * rng.Integer(0, 1)));
  }
  t.Set(codes);
}

// A product's sum of 128 inputs, which one scale multiplies.
class Fp8BlockSum {
 public:
  // `cuts`: whether cut() is wanted; it takes longer than the rest.
  explicit Fp8BlockSum(bool cuts) : cuts_(cuts) {}

  void Add(double product) {
    group_[count_++] = product;
    magnitude_ += std::abs(product);
    if (count_ == group_.size()) EndGroup();
  }
  // After the last Add().
  void EndGroup() {
    if (cuts_) cut_ += CutLoss();
    for (size_t i = 0; i < count_; ++i) value_ += group_[i];
    count_ = 0;
  }
  double value() const { return value_; }
  double magnitude() const { return magnitude_; }  // the sum of absolute values
  double cut() const { return cut_; }              // what tensor cores may cut off in all

 private:
  // What may be lost where Hopper's tensor cores add 32 products to a sum: of every product what
  // lies more than 13 bits below the highest bit of the largest of all, and as much of the sum,
  // before and after. (13 bits, and that bits are cut and not rounded, is measured:
  // kernels/fp8_gemm/README.md.)
  double CutLoss() const {
    double largest = std::abs(value_);
    for (size_t i = 0; i < count_; ++i) largest = std::max(largest, std::abs(group_[i]));
    if (largest == 0) return 0;
    const double unit = std::ldexp(1, std::ilogb(largest) - 13), inverse = 1 / unit;
    double loss = 2 * unit;
    for (size_t i = 0; i < count_; ++i) {
      const auto kept = static_cast<double>(static_cast<int64_t>(group_[i] * inverse));
      loss += std::abs(group_[i] - kept * unit);
    }
    return loss;
  }

  bool cuts_;
  std::array<double, 32> group_ = {};
  size_t count_ = 0;
  double value_ = 0, magnitude_ = 0, cut_ = 0;
};

// Elements of a product: by the formula, the sums of the products' absolute values, and what the
// tensor cores may have cut off.
struct Fp8Sums {
  std::vector<double> value, magnitude, cut;

  void Add(double v, double m, double c) {
    value.push_back(v);
    magnitude.push_back(m);
    cut.push_back(c);
  }
};

// Sums of 128 and of the blocks in f32 lose 2^-24 of the magnitude a step, in practice a few of
// them in all.
inline void ExpectFp8Close(const std::vector<double>& actual, const Fp8Sums& expected, DType y) {
  ASSERT_EQ(actual.size(), expected.value.size());
  const double rounding = y == DType::kBF16 ? 1.0 / 256 : 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double tolerance =
        1e-6 * expected.magnitude[i] + expected.cut[i] + rounding * std::abs(expected.value[i]);
    ASSERT_NEAR(actual[i], expected.value[i], tolerance) << "element " << i;
  }
}

}  // namespace millrace

#endif  // KERNELS_TESTING_FP8_SUM_H_
