// Grid: each thread one word of outputs, a row after the other. So many small blocks keep enough
// loads in flight that nothing else (several rows a thread, loads or stores that bypass a cache)
// was faster. Bound by memory.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/swiglu/gated.cuh"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {
namespace {

constexpr int kThreads = 128;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    GatedWords(const __grid_constant__ SwigluKernelArgs args, int blocks_per_row) {
  WaitForPriorGrid();
  StartNextGrid();
  const int t = static_cast<int>(blockIdx.x) / blocks_per_row;
  const int chunk = static_cast<int>(blockIdx.x) - t * blocks_per_row;
  const int i = (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWidth;
  if (i >= args.size) return;
  const Vec<T, kWidth> y = Gated(LoadGateUp<T, kWidth>(args, t, i), args.limit);
  StoreVec(static_cast<T*>(args.y) + t * args.y_stride + i, y);
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
