#include "kernels/latent_cache/rotate_pairs_cpu.h"

#include <algorithm>

#include "kernels/simd/simd.h"

namespace millrace {

PairRotation::PairRotation(const float* inv_freq, int64_t pairs) : pairs_(pairs) {
  std::copy_n(inv_freq, pairs, inv_freq_);
}

void PairRotation::MoveTo(int64_t position) {
  for (int64_t i = 0; i < pairs_; i += kLanes) {
    simd::F<kLanes> sin, cos;
    simd::SinCos<kLanes>(static_cast<double>(position), simd::Load<kLanes>(inv_freq_ + i), &sin,
                         &cos);
    simd::Store<kLanes>(sin_ + i, sin);
    simd::Store<kLanes>(cos_ + i, cos);
  }
}

void PairRotation::Rotate(float* x) const {
  for (int64_t i = 0; i < pairs_; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos_[i] - b * sin_[i];
    x[2 * i + 1] = b * cos_[i] + a * sin_[i];
  }
}

float SumOfSquares(const float* x, int64_t size) {
  constexpr int64_t kLanes = 4;
  simd::F<kLanes> a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= size; i += 2 * kLanes) {
    const auto u = simd::Load<kLanes>(x + i);
    const auto v = simd::Load<kLanes>(x + i + kLanes);
    a += u * u;
    b += v * v;
  }
  float sum = simd::Sum(a + b);
  for (; i < size; ++i) sum += x[i] * x[i];
  return sum;
}

}  // namespace millrace
