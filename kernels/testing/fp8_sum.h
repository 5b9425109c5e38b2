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
  // `cuts`: whether cut() and spread() are wanted; they take longer than the rest.
  explicit Fp8BlockSum(bool cuts) : cuts_(cuts) {}

  // A product of two codes' values. REQUIRES: cuts are wanted of numbers alone.
  void Add(double a, double b) {
    const double product = a * b;
    group_[count_++] = product;
    magnitude_ += std::abs(product);
    if (cuts_) top_ = std::max(top_, ExponentOf(a) + ExponentOf(b));
    if (count_ == group_.size()) EndGroup();
  }
  // After the last Add().
  void EndGroup() {
    if (count_ == 0) return;
    if (cuts_) {
      const double loss = CutLoss();
      cut_ += loss;
      spread_ += loss * loss;
    }
    for (size_t i = 0; i < count_; ++i) value_ += group_[i];
    count_ = 0;
    top_ = kLeastTop;
  }
  double value() const { return value_; }
  double magnitude() const { return magnitude_; }  // the sum of absolute values
  double cut() const { return cut_; }              // what tensor cores may cut off in all
  double spread() const { return spread_; }        // the sum of squares of what that is each time

 private:
  static constexpr int kLeastExponent = -6;  // of a code that is not subnormal
  static constexpr int kLeastTop = 2 * kLeastExponent;

  // As tensor cores have it: subnormal codes have the least of the others. That zeros have it too
  // is not known, and here they do: it allows more.
  static int ExponentOf(double code) {
    return code == 0 ? kLeastExponent : std::max(kLeastExponent, std::ilogb(code));
  }

  // What may be lost where Hopper's tensor cores add 32 products to a sum: of every product what
  // lies more than 13 bits below the largest exponent of all, a product's being the sum of its
  // codes', and as much of the sum, before and after. (13 bits, that bits are cut and not rounded,
  // and whose exponents count is measured: kernels/fp8_gemm/README.md.)
  double CutLoss() const {
    const int top = value_ == 0 ? top_ : std::max(top_, std::ilogb(value_));
    const double unit = std::ldexp(1, top - 13), inverse = 1 / unit;
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
  int top_ = kLeastTop;  // the largest exponent in the group
  double value_ = 0, magnitude_ = 0, cut_ = 0, spread_ = 0;
};

// An element of a product: by the formula, the sum of the products' absolute values, the most that
// tensor cores may cut off, and the square of what that adds up to where products have either sign.
struct Fp8Element {
  double value = 0, magnitude = 0, cut = 0, spread = 0;

  void Add(const Fp8BlockSum& sum, double scale) {
    value += sum.value() * scale;
    magnitude += sum.magnitude() * scale;
    cut += sum.cut() * scale;
    spread += sum.spread() * scale * scale;
  }
  // What is added after the product.
  void Add(double addend) {
    value += addend;
    magnitude += std::abs(addend);
  }
};
using Fp8Sums = std::vector<Fp8Element>;

// Of a result that is rounded once, to the nearest.
inline double Fp8ResultRounding(DType y) { return y == DType::kBF16 ? 1.001 / 256 : 0; }

// Whether no element is farther off than it may be. Sums of 128 and of the blocks in f32 lose 2^-24
// of the magnitude a step, in practice a few of them in all.
inline void ExpectFp8Within(const std::vector<double>& actual, const Fp8Sums& expected, DType y) {
  ASSERT_EQ(actual.size(), expected.size());
  const double rounding = Fp8ResultRounding(y);
  for (size_t i = 0; i < actual.size(); ++i) {
    const Fp8Element& e = expected[i];
    const double off = 1e-6 * e.magnitude + e.cut;
    ASSERT_NEAR(actual[i], e.value, off + rounding * (std::abs(e.value) + off)) << "element " << i;
  }
}

// Also that they are no farther off together than errors of either sign are: the most that each
// sum of 128 may lose, added up, leaves room for much that is wrong where there are many.
// REQUIRES: products of either sign.
inline void ExpectFp8Close(const std::vector<double>& actual, const Fp8Sums& expected, DType y) {
  ExpectFp8Within(actual, expected, y);
  constexpr size_t kEnough = 64;  // elements for a mean
  if (::testing::Test::HasFatalFailure() || actual.size() < kEnough) return;
  double squares = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const Fp8Element& e = expected[i];
    const double f32 = 1e-6 * e.magnitude, rounding = Fp8ResultRounding(y) * e.value;
    const double likely = e.spread + f32 * f32 + rounding * rounding;
    const double off = actual[i] - e.value;
    if (likely > 0) squares += off * off / likely;
  }
  // By each of the three alone it is some 0.1, 0.01 and 0.2.
  EXPECT_LT(squares / static_cast<double>(actual.size()), 0.5);
}

}  // namespace millrace

#endif  // KERNELS_TESTING_FP8_SUM_H_
