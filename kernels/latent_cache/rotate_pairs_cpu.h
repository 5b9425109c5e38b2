// The rotation of neighbouring channels, and the norm before it, for CPU rows of the baseline
// instruction set.
#ifndef KERNELS_LATENT_CACHE_ROTATE_PAIRS_CPU_H_
#define KERNELS_LATENT_CACHE_ROTATE_PAIRS_CPU_H_

#include <cstdint>

namespace millrace {

inline constexpr int64_t kMaxRotatedPairs = 512;

// Sines and cosines of one position, for all heads that stand there. Any thread.
class PairRotation final {
 public:
  // REQUIRES: pairs <= kMaxRotatedPairs. Borrows inv_freq.
  PairRotation(const float* inv_freq, int64_t pairs);

  // A negative position rotates back.
  void MoveTo(int64_t position);
  // x[2i], x[2i + 1] for i < pairs.
  void Rotate(float* x) const;

 private:
  static constexpr int64_t kLanes = 4;

  const int64_t pairs_;
  // Padded to whole vectors.
  alignas(16) float inv_freq_[kMaxRotatedPairs + kLanes] = {};
  alignas(16) float sin_[kMaxRotatedPairs + kLanes];
  alignas(16) float cos_[kMaxRotatedPairs + kLanes];
};

// sum of x[i]^2, in an order fixed by `size`.
float SumOfSquares(const float* x, int64_t size);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_ROTATE_PAIRS_CPU_H_
