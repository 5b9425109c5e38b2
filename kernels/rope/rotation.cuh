// The rotation of heads on the device, for rope and rope_append.
#ifndef KERNELS_ROPE_ROTATION_CUH_
#define KERNELS_ROPE_ROTATION_CUH_

#include <cstdint>

#include "kernels/ptx/vector.cuh"
#include "kernels/rope/rotation.h"

namespace millrace {

// sin and cos of position * inv_freq, within 1.5e-7. Product and reduction are done in double, so
// that large angles lose nothing; the polynomials are those of kernels/simd.
__device__ __forceinline__ void RotationOf(int32_t position, float inv_freq, float* sin,
                                           float* cos) {
  const double angle = static_cast<double>(position) * static_cast<double>(inv_freq);
  const double n = rint(angle * 0.63661977236758134);
  const float r = static_cast<float>(fma(-n, 1.57079632679489662, angle));
  const int quadrant = static_cast<int>(n);
  const float z = r * r;
  const float s = r + r * z * (-1.666665487e-01f + z * (8.332173589e-03f + z * -1.951666081e-04f));
  const float c =
      1.0f - 0.5f * z + z * z * (4.166664675e-02f + z * (-1.388736148e-03f + z * 2.443773274e-05f));
  const float sine = quadrant & 1 ? c : s;
  const float cosine = quadrant & 1 ? s : c;
  *sin = quadrant & 2 ? -sine : sine;
  *cos = (quadrant + 1) & 2 ? -cosine : cosine;
}

// One token's sines and cosines, in shared memory.
struct RotationTable {
  alignas(16) float sin[kMaxRopeDim / 2];
  alignas(16) float cos[kMaxRopeDim / 2];

  // By a block of `threads`, of which this is `thread`. Needs a barrier before it is read.
  __device__ __forceinline__ void Fill(int32_t position, const float* inv_freq, int half,
                                       int thread, int threads) {
    for (int i = thread; i < half; i += threads) {
      RotationOf(position, inv_freq[i], &sin[i], &cos[i]);
    }
  }
};

// The sines and cosines of kWidth pairs, in registers.
template <int kWidth>
struct Rotation {
  float sin[kWidth];
  float cos[kWidth];

  __device__ __forceinline__ Rotation(const RotationTable& table, int first) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      sin[j] = table.sin[first + j];
      cos[j] = table.cos[first + j];
    }
  }

  __device__ __forceinline__ void Turn(Floats<kWidth>* low, Floats<kWidth>* high) const {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const float a = low->v[j], b = high->v[j];
      low->v[j] = a * cos[j] - b * sin[j];
      high->v[j] = b * cos[j] + a * sin[j];
    }
  }

  // In f32, rounded once.
  template <typename From, typename To>
  __device__ __forceinline__ void Apply(const Vec<From, kWidth>& low, const Vec<From, kWidth>& high,
                                        Vec<To, kWidth>* to_low, Vec<To, kWidth>* to_high) const {
    Floats<kWidth> a = Widened(low), b = Widened(high);
    Turn(&a, &b);
    *to_low = Narrowed<To>(a);
    *to_high = Narrowed<To>(b);
  }
};

}  // namespace millrace

#endif  // KERNELS_ROPE_ROTATION_CUH_
