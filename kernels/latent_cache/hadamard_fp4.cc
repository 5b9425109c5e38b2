#include "kernels/latent_cache/hadamard_fp4.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/core/dtype.h"
#include "kernels/lowp/small_float.h"

namespace millrace {
namespace {

constexpr int kLargestE2M1 = 6;
constexpr double kSmallestScale = 0x1p-126;

void Hadamard(float* row, int64_t dim) {
  for (int64_t half = 1; half < dim; half *= 2) {
    for (int64_t i = 0; i < dim; i += 2 * half) {
      for (int64_t j = i; j < i + half; ++j) {
        const float a = row[j], b = row[j + half];
        row[j] = a + b;
        row[j + half] = a - b;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int64_t i = 0; i < dim; ++i) row[i] = ToFloat(ToBFloat16(row[i] * scale));
}

void RoundBlock(float* x) {
  float amax = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < kHadamardFp4Block; ++i) {
    is_finite = is_finite && std::abs(x[i]) <= std::numeric_limits<float>::max();
    amax = std::max(amax, std::abs(x[i]));
  }
  if (!is_finite) {
    std::fill_n(x, kHadamardFp4Block, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const float scale =
      kE8M0Values[EncodeE8M0RoundUp(std::max(double{amax} / kLargestE2M1, kSmallestScale))];
  for (int64_t i = 0; i < kHadamardFp4Block; ++i) {
    x[i] = kE2M1Values[EncodeE2M1(double{x[i]} / double{scale})] * scale;
  }
}

}  // namespace

void ApplyHadamardFp4(float* row, int64_t dim) {
  Hadamard(row, dim);
  for (int64_t i = 0; i < dim; i += kHadamardFp4Block) RoundBlock(row + i);
}

}  // namespace millrace
