// Grid: each thread one word of outputs, a row after the other. So many small blocks keep enough
// loads in flight that nothing else (several rows a thread, loads or stores that bypass a cache)
// was faster. Bound by memory.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;

// Exact enough for each dtype: f32 to a few ulp, bf16 far below its rounding. Large -gate gives
// exp = inf and a zero, of whatever sign.
__device__ __forceinline__ float Silu(float gate, float) { return gate / (1.0f + expf(-gate)); }
__device__ __forceinline__ float Silu(float gate, __nv_bfloat16) {
  return __fdividef(gate, 1.0f + __expf(-gate));
}

// At most `limit`; NaN, which fails the comparison, stays.
__device__ __forceinline__ float Below(float x, float limit) { return x > limit ? limit : x; }

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    GatedWords(const __grid_constant__ SwigluKernelArgs args, int blocks_per_row) {
  WaitForPriorGrid();
  StartNextGrid();
  const int t = static_cast<int>(blockIdx.x) / blocks_per_row;
  const int chunk = static_cast<int>(blockIdx.x) - t * blocks_per_row;
  const int i = (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
  if (i >= args.size) return;
  // Before column i lie i / block whole blocks of gates, and as many of ups.
  const int64_t skipped = static_cast<int64_t>(i / args.block) * args.block;
  const T* from = static_cast<const T*>(args.x) + t * args.x_stride + i + skipped;
  const Vec<T, kWidth> gates = LoadVec<kWidth>(from);
  const Vec<T, kWidth> ups = LoadVec<kWidth>(from + args.block);
  Floats<kWidth> y = Widened(gates);
  const Floats<kWidth> up = Widened(ups);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const float bounded = -Below(-Below(up.v[j], args.limit), args.limit);
    y.v[j] = Silu(Below(y.v[j], args.limit), T()) * bounded;
  }
  StoreVec(static_cast<T*>(args.y) + t * args.y_stride + i, Narrowed<T>(y));
}

struct Choice {
  void (*kernel)(SwigluKernelArgs, int);
  int width;  // elements a word
};

constexpr Choice kChoices[] = {
    {GatedWords<float, 1>, 1},
    {GatedWords<__nv_bfloat16, 1>, 1},
    {GatedWords<__nv_bfloat16, 8>, 8},
};

}  // namespace

cudaError_t LaunchSwiglu(SwigluVariant variant, const SwigluKernelArgs& args, cudaStream_t stream) {
  const Choice choice = kChoices[static_cast<int>(variant)];
  const int per_block = kThreads * choice.width;
  const int blocks_per_row = (args.size + per_block - 1) / per_block;
  return Launch(
      choice.kernel,
      {.grid = dim3(static_cast<unsigned>(blocks_per_row * args.tokens)), .block = dim3(kThreads)},
      stream, args, blocks_per_row);
}

}  // namespace millrace
