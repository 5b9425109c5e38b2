// How the tests of ops that end in a quantisation quantise.
#ifndef KERNELS_QUANTIZE_TESTING_H_
#define KERNELS_QUANTIZE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/quantize/quantize.h"
#include "kernels/testing/guarded_tensor.h"

namespace millrace {

struct QuantizeForm {
  QuantizeUnit unit;
  QuantizeScale rounding;
  QuantizeFormat format;
};

// Each unit, scale and format that rows of a fused op may have.
inline constexpr QuantizeForm kQuantizeForms[] = {
    {QuantizeUnit::kGroup, QuantizeScale::kF32, QuantizeFormat::kE4M3},
    {QuantizeUnit::kGroup, QuantizeScale::kPowerOfTwo, QuantizeFormat::kE5M2},
    {QuantizeUnit::kToken, QuantizeScale::kF32, QuantizeFormat::kE4M3},
    {QuantizeUnit::kToken, QuantizeScale::kPowerOfTwo, QuantizeFormat::kE5M2},
    {QuantizeUnit::kTensor, QuantizeScale::kGiven, QuantizeFormat::kE4M3},
    {QuantizeUnit::kGroup, QuantizeScale::kPowerOfTwo, QuantizeFormat::kE4M3},
    {QuantizeUnit::kGroup, QuantizeScale::kF32, QuantizeFormat::kE5M2},
};

// Scales of [tokens, size] as `form` has them, a given one set; rows of groups' scales padded.
inline GuardedTensor QuantizeScales(Device& device, const QuantizeForm& form, int64_t tokens,
                                    int64_t size, int64_t padding) {
  std::vector<int64_t> shape = {1};
  if (form.unit == QuantizeUnit::kToken) shape = {tokens};
  if (form.unit == QuantizeUnit::kGroup) shape = {(size + 127) / 128, tokens};
  GuardedTensor scale(device, DType::kF32, shape, form.unit == QuantizeUnit::kGroup ? padding : 0);
  if (form.rounding == QuantizeScale::kGiven) scale.SetAll(0.0123);
  return scale;
}

// How far two devices' results of one call are from each other.
struct QuantizeDifference {
  double steps = 0;   // the most of a code, in codes of its format
  double share = 0;   // of codes that differ
  double scales = 0;  // the most of a scale, as a part of it
};

inline QuantizeDifference DifferenceOf(const GuardedTensor& codes, const GuardedTensor& scale,
                                       const GuardedTensor& other_codes,
                                       const GuardedTensor& other_scale) {
  QuantizeDifference difference;
  const auto most = [](double& to, double x) {
    to = std::max(to, std::isnan(x) ? INFINITY : std::abs(x));
  };
  // Codes of one sign ascend with their magnitudes; the two zeros are one.
  const auto order = [](double code) { return code < 128 ? code : 128 - code; };
  const std::vector<double> a = codes.Get(), b = other_codes.Get();
  for (size_t i = 0; i < a.size(); ++i) {
    most(difference.steps, order(a[i]) - order(b[i]));
    if (a[i] != b[i]) difference.share += 1 / static_cast<double>(a.size());
  }
  const std::vector<double> s = scale.Get(), t = other_scale.Get();
  for (size_t i = 0; i < s.size(); ++i) most(difference.scales, s[i] / t[i] - 1);
  return difference;
}

// Of rows that differ between devices by some units of f32 before they are rounded to x's dtype.
// That moves one in 2^12 to its neighbour in bf16 (2^-20 of it, where borders lie 2^-8 apart), a
// sixteenth of which moves a code; a group's largest one moves the scale, by 2^-7 at most. Scales
// of f32 rows differ as the rows do. That the largest one lies where powers of two change, and the
// scale is the next, happens in none of these tests.
inline void ExpectNear(const QuantizeDifference& difference, DType x) {
  EXPECT_LE(difference.steps, 1);
  EXPECT_LE(difference.share, 0x1p-12);
  EXPECT_LE(difference.scales, x == DType::kBF16 ? 0x1p-7 : 0x1p-20);
}

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_TESTING_H_
