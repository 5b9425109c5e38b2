// Grid: tokens by pieces of a row. A thread adds eight elements, loaded 16 bytes at a time, or one.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/add/add_kernel.h"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;

// Elements a word of 16 bytes has, or 1.
template <typename T, int kCount>
constexpr int kWidth = kCount == 1 ? 1 : 16 / static_cast<int>(sizeof(T));

// kCount elements from `i` on.
template <typename T, int kCount>
__device__ __forceinline__ void LoadElements(const AddRows& rows, int i, float (&out)[kCount]) {
  constexpr int kEach = kWidth<T, kCount>;
  const T* const from = static_cast<const T*>(rows.data) + blockIdx.x * rows.stride + i;
#pragma unroll
  for (int n = 0; n < kCount; n += kEach) {
    const Floats<kEach> part = Widened(LoadVec<kEach>(from + n));
#pragma unroll
    for (int j = 0; j < kEach; ++j) out[n + j] = part.v[j];
  }
}

template <typename T, int kCount>
__device__ __forceinline__ void StoreElements(const AddRows& rows, int i,
                                              const float (&values)[kCount]) {
  constexpr int kEach = kWidth<T, kCount>;
  T* const to = static_cast<T*>(rows.data) + blockIdx.x * rows.stride + i;
#pragma unroll
  for (int n = 0; n < kCount; n += kEach) {
    Floats<kEach> part;
#pragma unroll
    for (int j = 0; j < kEach; ++j) part.v[j] = values[n + j];
    StoreVec(to + n, Narrowed<T>(part));
  }
}

// y may be a or b: a thread reads all it adds before it writes.
template <typename A, typename B, typename Y, int kCount>
__global__ void __launch_bounds__(kThreads) AddKernel(const __grid_constant__ AddKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (i >= args.width) return;
  float a[kCount], b[kCount];
  LoadElements<A>(args.a, i, a);
  LoadElements<B>(args.b, i, b);
#pragma unroll
  for (int j = 0; j < kCount; ++j) a[j] += b[j];
  StoreElements<Y>(args.y, i, a);
}

using Kernel = void (*)(AddKernelArgs);
using Bf16 = __nv_bfloat16;

// By whether a, b and y are bf16.
template <int kCount>
constexpr Kernel kKernels[2][2][2] = {
    {{AddKernel<float, float, float, kCount>, AddKernel<float, float, Bf16, kCount>},
     {AddKernel<float, Bf16, float, kCount>, AddKernel<float, Bf16, Bf16, kCount>}},
    {{AddKernel<Bf16, float, float, kCount>, AddKernel<Bf16, float, Bf16, kCount>},
     {AddKernel<Bf16, Bf16, float, kCount>, AddKernel<Bf16, Bf16, Bf16, kCount>}},
};

}  // namespace

cudaError_t LaunchAdd(const AddKernelArgs& args, bool vectors, cudaStream_t stream) {
  const auto& kernels = vectors ? kKernels<kAddVector> : kKernels<1>;
  const int words = vectors ? args.width / kAddVector : args.width;
  const int threads = std::min(kThreads, (words + 31) / 32 * 32);
  return Launch(kernels[args.a.bf16][args.b.bf16][args.y.bf16],
                {.grid = dim3(static_cast<unsigned>(args.tokens),
                              static_cast<unsigned>((words + threads - 1) / threads)),
                 .block = dim3(static_cast<unsigned>(threads))},
                stream, args);
}

}  // namespace millrace
