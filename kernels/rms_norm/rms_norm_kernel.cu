// Grid: one block a token. The row is read once into registers (up to kWords words a thread; what is
// longer is read again from L2), its squares are summed over the block, and it is written scaled.
// Blocks in row order and many to a multiprocessor keep the memory busy: persistent blocks that load
// a row ahead, and rings of bulk copies, were 5 to 10 % slower.
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
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sum += Widen(h.v[j]) * Widen(h.v[j]);
  return sum;
}

// residual += x, rounded; returns that.
template <typename T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> AddTo(T* residual, const Vec<T, kWidth>& x) {
  Vec<T, kWidth> h = LoadVec<kWidth>(residual);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) Narrow(Widen(h.v[j]) + Widen(x.v[j]), &h.v[j]);
  StoreVec(residual, h);
  return h;
}

template <typename T, typename W, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> Scaled(const Vec<T, kWidth>& h, float scale,
                                                 const Vec<W, kWidth>& weight) {
  Vec<T, kWidth> y;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) Narrow(Widen(h.v[j]) * scale * Widen(weight.v[j]), &y.v[j]);
  return y;
}

template <typename T, typename W, int kWidth, int kWords>
__global__ void __launch_bounds__(kMaxThreads)
    RmsNormRow(const __grid_constant__ RmsNormKernelArgs args) {
  const int64_t t = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + t * args.x_stride;
  T* residual = args.residual == nullptr
                    ? nullptr
                    : static_cast<T*>(args.residual) + t * args.residual_stride;
  T* y = static_cast<T*>(args.y) + t * args.y_stride;
  const W* weight = static_cast<const W*>(args.weight);
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  const int step = static_cast<int>(blockDim.x) * kWidth;
  Vec<W, kWidth> scales[kWords];  // weights are there before the step
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    if (first + n * step < args.size) scales[n] = LoadVec<kWidth>(weight + first + n * step);
  }
  WaitForPriorGrid();
  StartNextGrid();

  Vec<T, kWidth> kept[kWords];
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    if (first + n * step < args.size) kept[n] = LoadVec<kWidth>(x + first + n * step);
  }
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    if (first + n * step >= args.size) break;
    if (residual != nullptr) kept[n] = AddTo<T, kWidth>(residual + first + n * step, kept[n]);
    sum += SumOfSquares(kept[n]);
  }
  const int rest = first + kWords * step;
  for (int i = rest; i < args.size; i += step) {
    Vec<T, kWidth> h = LoadVec<kWidth>(x + i);
    if (residual != nullptr) h = AddTo<T, kWidth>(residual + i, h);
    sum += SumOfSquares(h);
  }
  const float scale = rsqrtf(BlockSum(sum) / static_cast<float>(args.size) + args.eps);
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    if (first + n * step >= args.size) break;
    StoreVec(y + first + n * step, Scaled(kept[n], scale, scales[n]));
  }
  const T* h_row = residual == nullptr ? x : residual;
  for (int i = rest; i < args.size; i += step) {
    StoreVec(y + i, Scaled(LoadVec<kWidth>(h_row + i), scale, LoadVec<kWidth>(weight + i)));
  }
}

struct Choice {
  void (*kernel)(RmsNormKernelArgs);
  int width;  // elements a word
};

Choice Choose(RmsNormVariant variant, int size) {
  using Bf16 = __nv_bfloat16;
  switch (variant) {
    case RmsNormVariant::kF32:
      return {RmsNormRow<float, float, 1, 4>, 1};
    case RmsNormVariant::kF32Bf16:
      return {RmsNormRow<float, Bf16, 1, 4>, 1};
    case RmsNormVariant::kBf16F32:
      return {RmsNormRow<Bf16, float, 1, 4>, 1};
    case RmsNormVariant::kBf16:
      return {RmsNormRow<Bf16, Bf16, 1, 4>, 1};
    case RmsNormVariant::kBf16Vector:
      break;
  }
  if (size <= kMaxThreads * 8) return {RmsNormRow<Bf16, Bf16, 8, 1>, 8};
  if (size <= 2 * kMaxThreads * 8) return {RmsNormRow<Bf16, Bf16, 8, 2>, 8};
  return {RmsNormRow<Bf16, Bf16, 8, 4>, 8};
}

}  // namespace

cudaError_t LaunchRmsNorm(RmsNormVariant variant, const RmsNormKernelArgs& args,
                          cudaStream_t stream) {
  const Choice choice = Choose(variant, args.size);
  const int words = (args.size + choice.width - 1) / choice.width;
  const int threads = words >= kMaxThreads ? kMaxThreads : (words + kWarp - 1) / kWarp * kWarp;
  return Launch(choice.kernel,
                {.grid = dim3(static_cast<unsigned>(args.tokens)),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args);
}

}  // namespace millrace
