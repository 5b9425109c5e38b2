// Grid: one block a token. The block makes the token's sines and cosines before it waits for the
// kernel ahead; then thread (x, y) rotates word x of the heads y, y + blockDim.y, ..., two at a
// time, so that its sines and cosines stay in registers. Bound by memory.
#include <algorithm>

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/vector.cuh"
#include "kernels/rope/rope_kernel.h"
#include "kernels/rope/rotation.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 192;     // a multiple of the words in a half head of 64, 96, 128 and 256
constexpr int kMaxThreads = 256;  // where a half head has more words than that
constexpr int kInFlight = 2;      // heads
constexpr int kBlocks = 4;        // of kMaxThreads to a multiprocessor: bounds the registers

template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads, kBlocks)
    RotateToken(const __grid_constant__ RopeKernelArgs args) {
  __shared__ RotationTable table;
  const int t = static_cast<int>(blockIdx.x);
  const int half = args.dim / 2;
  table.Fill(args.positions[t], args.inv_freq, half,
             static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x),
             static_cast<int>(blockDim.x * blockDim.y));
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();
  const int first = static_cast<int>(threadIdx.x) * kWidth;
  T* x = static_cast<T*>(args.x) + t * args.token_stride + first;
  const int step = static_cast<int>(blockDim.y);
#pragma unroll 1
  for (int begin = static_cast<int>(threadIdx.y); begin < args.heads; begin += kInFlight * step) {
    Vec<T, kWidth> low[kInFlight], high[kInFlight];
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int h = begin + n * step;
      if (h >= args.heads) break;
      low[n] = LoadVec<kWidth>(x + h * args.head_stride);
      high[n] = LoadVec<kWidth>(x + h * args.head_stride + half);
    }
#pragma unroll
    for (int n = 0; n < kInFlight; ++n) {
      const int h = begin + n * step;
      if (h >= args.heads) break;
      Rotation<kWidth>(table, first).Apply(low[n], high[n], &low[n], &high[n]);
      StoreVec(x + h * args.head_stride, low[n]);
      StoreVec(x + h * args.head_stride + half, high[n]);
    }
  }
}

struct Choice {
  void (*kernel)(RopeKernelArgs);
  int width;  // pairs a thread
};

constexpr Choice kChoices[] = {
    {RotateToken<float, 1>, 1},
    {RotateToken<__nv_bfloat16, 1>, 1},
    {RotateToken<__nv_bfloat16, 8>, 8},
};

}  // namespace

cudaError_t LaunchRope(RopeVariant variant, const RopeKernelArgs& args, cudaStream_t stream) {
  const Choice choice = kChoices[static_cast<int>(variant)];
  const int words = args.dim / 2 / choice.width;
  const int rows =
      std::clamp((args.heads + kInFlight - 1) / kInFlight, 1, std::max(1, kThreads / words));
  return Launch(choice.kernel,
                {.grid = dim3(static_cast<unsigned>(args.tokens)),
                 .block = dim3(static_cast<unsigned>(words), static_cast<unsigned>(rows))},
                stream, args);
}

}  // namespace millrace
