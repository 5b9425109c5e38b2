// The row of a token, normalised by one block: of RmsNorm and of the ops that go on from there.
#ifndef KERNELS_RMS_NORM_NORM_ROW_CUH_
#define KERNELS_RMS_NORM_NORM_ROW_CUH_

#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {

inline constexpr int kNormThreads = 256;  // at most, a block

// Sum over the block, the same in every thread and in every run.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float parts[kNormThreads / 32];
  for (int d = 32 / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < blockDim.x / 32; ++i) sum += parts[i];
  return sum;
}

template <typename T, int kWidth>
__device__ __forceinline__ float SumOfSquares(const Vec<T, kWidth>& h) {
  const Floats<kWidth> values = Widened(h);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum += values.v[j] * values.v[j];
  return sum;
}

template <typename T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> Sum(const Vec<T, kWidth>& a, const Vec<T, kWidth>& b) {
  Floats<kWidth> sum = Widened(a);
  const Floats<kWidth> added = Widened(b);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum.v[j] += added.v[j];
  return Narrowed<T>(sum);
}

template <typename T, typename W, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> Scaled(const Vec<T, kWidth>& h, float scale,
                                                 const Vec<W, kWidth>& weight) {
  Floats<kWidth> y = Widened(h);
  const Floats<kWidth> w = Widened(weight);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) y.v[j] *= scale * w.v[j];
  return Narrowed<T>(y);
}

template <typename T, typename W, int kElements, int kKept>
struct NormTraits {
  using Element = T;
  using Weight = W;
  static constexpr int kWidth = kElements;  // of a word
  static constexpr int kWords = kKept;      // a thread keeps; 0: the row is read twice
  // Blocks that a multiprocessor has registers for: what keeps its memory busy.
  static constexpr int kBlocks = kKept <= 2 ? 6 : 4;

  // Elements that the block takes at once. A row of more than one word a thread has all threads:
  // known here, the step costs no registers.
  __device__ __forceinline__ static int Step() {
    return (kWords > 1 ? kNormThreads : static_cast<int>(blockDim.x)) * kWidth;
  }
};

// What one block works on.
template <typename Traits, bool kResidual>
struct NormRow {
  using T = typename Traits::Element;
  using W = typename Traits::Weight;
  const T* x;
  T* residual;
  const W* weight;
  T* y;
  int size;

  __device__ __forceinline__ explicit NormRow(const RmsNormKernelArgs& args)
      : x(static_cast<const T*>(args.x) + blockIdx.x * args.x_stride),
        residual(static_cast<T*>(args.residual) + blockIdx.x * args.residual_stride),
        weight(static_cast<const W*>(args.weight)),
        y(static_cast<T*>(args.y) + blockIdx.x * args.y_stride),
        size(args.size) {}

  // For rows of any length.
  __device__ __forceinline__ float SumFrom(int first, int step) const {
    constexpr int kWidth = Traits::kWidth;
    float sum = 0;
    for (int i = first; i < size; i += step) {
      Vec<T, kWidth> h = LoadVec<kWidth>(x + i);
      if constexpr (kResidual) {
        h = Sum(LoadVec<kWidth>(residual + i), h);
        StoreVec(residual + i, h);
      }
      sum += SumOfSquares(h);
    }
    return sum;
  }
  __device__ __forceinline__ void StoreFrom(int first, int step, float scale) const {
    constexpr int kWidth = Traits::kWidth;
    const T* h = kResidual ? residual : x;
    for (int i = first; i < size; i += step) {
      StoreVec(y + i, Scaled(LoadVec<kWidth>(h + i), scale, LoadVec<kWidth>(weight + i)));
    }
  }
};

// 1 / sqrt(mean + eps), from each thread's part of the sum of squares.
__device__ __forceinline__ float NormScale(const RmsNormKernelArgs& args, float sum) {
  return rsqrtf(BlockSum(sum) / static_cast<float>(args.size) + args.eps);
}

// The row, in registers between its two passes: emit(n, i, word) gets the n-th word of this thread,
// elements i and on. The weights are there before the step.
template <typename Traits, bool kResidual, typename Emit>
__device__ __forceinline__ void NormalizeKept(const RmsNormKernelArgs& args, Emit emit) {
  constexpr int kWidth = Traits::kWidth;
  constexpr int kWords = Traits::kWords;
  StartNextGridEarly();
  const NormRow<Traits, kResidual> row(args);
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = Traits::Step();
  Vec<typename Traits::Weight, kWidth> weights[kWords];
  Vec<typename Traits::Element, kWidth> h[kWords], r[kWords];
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first + n * step;
    if (i < args.size) weights[n] = LoadVec<kWidth>(row.weight + i);
  }
  WaitForPriorGrid();
  StartNextGrid();
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first + n * step;
    if (i < args.size) h[n] = LoadVec<kWidth>(row.x + i);
    if (kResidual && i < args.size) r[n] = LoadVec<kWidth>(row.residual + i);
  }
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first + n * step;
    if (i >= args.size) continue;
    if constexpr (kResidual) {
      h[n] = Sum(r[n], h[n]);
      StoreVec(row.residual + i, h[n]);
    }
    sum += SumOfSquares(h[n]);
  }
  const float scale = NormScale(args, sum);
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first + n * step;
    if (i < args.size) emit(n, i, Scaled(h[n], scale, weights[n]));
  }
}

// Threads of a block for rows of `size` elements, `width` a word.
inline int NormBlockThreads(int size, int width) {
  const int words = (size + width - 1) / width;
  return words >= kNormThreads ? kNormThreads : (words + 31) / 32 * 32;
}

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_NORM_ROW_CUH_
