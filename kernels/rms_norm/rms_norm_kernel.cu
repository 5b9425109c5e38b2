// Grid: one block a token. The row is read once into registers (up to kWords words a thread; what
// is longer is read again from L2), its squares are summed over the block, and it is written
// scaled. Blocks in row order and many to a multiprocessor keep the memory busy: persistent blocks
// that load a row ahead, and rings of bulk copies, were 5 to 10 % slower.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kWarp = 32;

// Sum over the block, the same in every thread and in every run.
__device__ float BlockSum(float x) {
  __shared__ float parts[kMaxThreads / kWarp];
  for (int d = kWarp / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < blockDim.x / kWarp; ++i) sum += parts[i];
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
struct Traits {
  using Element = T;
  using Weight = W;
  static constexpr int kWidth = kElements;  // of a word
  static constexpr int kWords = kKept;      // a thread keeps; 0: the row is read twice
  // Blocks that a multiprocessor has registers for: what keeps its memory busy.
  static constexpr int kBlocks = kKept <= 2 ? 6 : 4;
};

// What one block works on.
template <typename Traits, bool kResidual>
struct Row {
  using T = typename Traits::Element;
  using W = typename Traits::Weight;
  const T* x;
  T* residual;
  const W* weight;
  T* y;
  int size;

  __device__ __forceinline__ explicit Row(const RmsNormKernelArgs& args)
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

template <typename Traits, bool kResidual>
__global__ void __launch_bounds__(kMaxThreads, Traits::kBlocks)
    RmsNormRow(const __grid_constant__ RmsNormKernelArgs args) {
  constexpr int kWidth = Traits::kWidth;
  constexpr int kWords = Traits::kWords;
  const Row<Traits, kResidual> row(args);
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  // A row of more than one word a thread has all threads: known here, the step costs no registers.
  const int step = (kWords > 1 ? kMaxThreads : static_cast<int>(blockDim.x)) * kWidth;
  const auto scale_of = [&](float sum) {
    return rsqrtf(BlockSum(sum) / static_cast<float>(args.size) + args.eps);
  };
  if constexpr (kWords == 0) {
    WaitForPriorGrid();
    StartNextGrid();
    row.StoreFrom(first, step, scale_of(row.SumFrom(first, step)));
  } else {
    Vec<typename Traits::Weight, kWidth> weights[kWords];  // they are there before the step
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
    const float scale = scale_of(sum);
#pragma unroll
    for (int n = 0; n < kWords; ++n) {
      const int i = first + n * step;
      if (i < args.size) StoreVec(row.y + i, Scaled(h[n], scale, weights[n]));
    }
  }
}

struct Choice {
  void (*plain)(RmsNormKernelArgs);
  void (*with_residual)(RmsNormKernelArgs);
  int width;  // elements a word
};

template <typename Traits>
constexpr Choice kChoice = {RmsNormRow<Traits, false>, RmsNormRow<Traits, true>, Traits::kWidth};

Choice Choose(RmsNormVariant variant, int size) {
  using Bf16 = __nv_bfloat16;
  switch (variant) {
    case RmsNormVariant::kF32:
      return kChoice<Traits<float, float, 1, 0>>;
    case RmsNormVariant::kF32Bf16:
      return kChoice<Traits<float, Bf16, 1, 0>>;
    case RmsNormVariant::kBf16F32:
      return kChoice<Traits<Bf16, float, 1, 0>>;
    case RmsNormVariant::kBf16:
      return kChoice<Traits<Bf16, Bf16, 1, 0>>;
    case RmsNormVariant::kBf16Vector:
      break;
  }
  const int words = (size + kMaxThreads * 8 - 1) / (kMaxThreads * 8);
  if (words <= 1) return kChoice<Traits<Bf16, Bf16, 8, 1>>;
  if (words <= 2) return kChoice<Traits<Bf16, Bf16, 8, 2>>;
  if (words <= 4) return kChoice<Traits<Bf16, Bf16, 8, 4>>;
  return kChoice<Traits<Bf16, Bf16, 8, 0>>;
}

}  // namespace

cudaError_t LaunchRmsNorm(RmsNormVariant variant, const RmsNormKernelArgs& args,
                          cudaStream_t stream) {
  const Choice choice = Choose(variant, args.size);
  const int words = (args.size + choice.width - 1) / choice.width;
  const int threads = words >= kMaxThreads ? kMaxThreads : (words + kWarp - 1) / kWarp * kWarp;
  return Launch(args.residual == nullptr ? choice.plain : choice.with_residual,
                {.grid = dim3(static_cast<unsigned>(args.tokens)),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args);
}

}  // namespace millrace
