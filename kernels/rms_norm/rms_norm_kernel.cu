// Grid: one block a token. The row is read once into registers (up to kMaxPerThread elements a
// thread; longer rows are read again from L2), its squares are summed over the block, and it is
// written scaled. Bound by memory for many tokens, by latency for few.
#include <cuda_bf16.h>

#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float Widen(float x) { return x; }
__device__ __forceinline__ float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void Narrow(float x, float* to) { *to = x; }
__device__ __forceinline__ void Narrow(float x, __nv_bfloat16* to) { *to = __float2bfloat16(x); }

// kWidth elements of T, loaded and stored as one word.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Vec {
  T v[kWidth];
};

// Sum over the block, the same in every thread and in every run.
__device__ float BlockSum(float x) {
  __shared__ float parts[kThreads / 32];
  for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += parts[i];
  return sum;
}

// h = x, or residual += x and h = residual as stored.
template <typename T, int kWidth>
__device__ __forceinline__ Vec<T, kWidth> LoadRow(const T* x, T* residual, int i) {
  using V = Vec<T, kWidth>;
  V h = *reinterpret_cast<const V*>(x + i);
  if (residual == nullptr) return h;
  V r = *reinterpret_cast<const V*>(residual + i);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) Narrow(Widen(h.v[j]) + Widen(r.v[j]), &r.v[j]);
  *reinterpret_cast<V*>(residual + i) = r;
  return r;
}

template <typename T, typename W, int kWidth>
__global__ void __launch_bounds__(kThreads)
    RmsNormRow(const __grid_constant__ RmsNormKernelArgs args) {
  using V = Vec<T, kWidth>;
  constexpr int kMaxPerThread = 4;  // words of kWidth: 8192 bf16 a row stay in registers
  const int64_t t = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + t * args.x_stride;
  T* residual = args.residual == nullptr
                    ? nullptr
                    : static_cast<T*>(args.residual) + t * args.residual_stride;
  T* y = static_cast<T*>(args.y) + t * args.y_stride;
  const W* weight = static_cast<const W*>(args.weight);
  V kept[kMaxPerThread];
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kMaxPerThread; ++n) {
    const int i = (threadIdx.x + n * kThreads) * kWidth;
    if (i >= args.size) break;
    kept[n] = LoadRow<T, kWidth>(x, residual, i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += Widen(kept[n].v[j]) * Widen(kept[n].v[j]);
  }
  const int rest = (threadIdx.x + kMaxPerThread * kThreads) * kWidth;
  for (int i = rest; i < args.size; i += kThreads * kWidth) {
    const V h = LoadRow<T, kWidth>(x, residual, i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += Widen(h.v[j]) * Widen(h.v[j]);
  }
  const float scale = rsqrtf(BlockSum(sum) / static_cast<float>(args.size) + args.eps);
  const auto store = [&](const V& h, int i) {
    const auto w = *reinterpret_cast<const Vec<W, kWidth>*>(weight + i);
    V out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) Narrow(Widen(h.v[j]) * scale * Widen(w.v[j]), &out.v[j]);
    *reinterpret_cast<V*>(y + i) = out;
  };
#pragma unroll
  for (int n = 0; n < kMaxPerThread; ++n) {
    const int i = (threadIdx.x + n * kThreads) * kWidth;
    if (i >= args.size) break;
    store(kept[n], i);
  }
  const T* h_row = residual == nullptr ? x : residual;
  for (int i = rest; i < args.size; i += kThreads * kWidth) {
    store(*reinterpret_cast<const V*>(h_row + i), i);
  }
}

using Kernel = void (*)(RmsNormKernelArgs);
constexpr Kernel kKernels[] = {
    RmsNormRow<float, float, 1>,
    RmsNormRow<float, __nv_bfloat16, 1>,
    RmsNormRow<__nv_bfloat16, float, 1>,
    RmsNormRow<__nv_bfloat16, __nv_bfloat16, 1>,
    RmsNormRow<__nv_bfloat16, __nv_bfloat16, 8>,
};

}  // namespace

cudaError_t LaunchRmsNorm(RmsNormVariant variant, const RmsNormKernelArgs& args,
                          cudaStream_t stream) {
  kKernels[static_cast<int>(variant)]<<<args.tokens, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace millrace
