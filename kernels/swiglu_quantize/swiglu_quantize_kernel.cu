// Groups, or a given scale: each thread one word of eight outputs, as Swiglu has it; sixteen lanes
// have a group. Tokens: a block a token, the row in registers until its largest magnitude is known.
// Bound by memory.
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/swiglu/gated.cuh"
#include "kernels/swiglu_quantize/swiglu_quantize_kernel.h"

namespace millrace {
namespace {

constexpr int kWordThreads = 128;
constexpr int kRowThreads = 256;
using Word = Vec<__nv_bfloat16, kCodeWidth>;

// Outputs i to i + 7 of a token, as Swiglu rounds them.
__device__ __forceinline__ Word GatedWord(const SwigluKernelArgs& args, int token, int i) {
  return Gated(LoadGateUp<__nv_bfloat16, kCodeWidth>(args, token, i), args.limit);
}

template <RowUnit kUnit>
__global__ void __launch_bounds__(kWordThreads)
    SwigluQuantizeWords(const __grid_constant__ SwigluQuantizeKernelArgs args, int blocks_per_row) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.x) / blocks_per_row;
  const int chunk = static_cast<int>(blockIdx.x) - token * blocks_per_row;
  const int i = (chunk * kWordThreads + static_cast<int>(threadIdx.x)) * kCodeWidth;
  const bool in = i < args.gated.size;
  Floats<kCodeWidth> y = {};
  if (in) y = Widened(GatedWord(args.gated, token, i));
  if constexpr (kUnit == RowUnit::kGroup) {
    StoreGroup(args.out, token, i, in, y);
  } else if (in) {
    StoreCodes(args.out, token, i, Encode(y, __frcp_rn(*args.out.scale), args.out.e5m2));
  }
}

template <int kWords>
__global__ void __launch_bounds__(kRowThreads)
    SwigluQuantizeRow(const __grid_constant__ SwigluQuantizeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  constexpr int kStep = kRowThreads * kCodeWidth;
  const int token = static_cast<int>(blockIdx.x);
  Word words[kWords] = {};
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = static_cast<int>(threadIdx.x) * kCodeWidth + n * kStep;
    if (i < args.gated.size) words[n] = GatedWord(args.gated, token, i);
  }
  StoreRow<RowUnit::kToken>(args.out, token, kStep, words);
}

cudaError_t LaunchRow(const SwigluQuantizeKernelArgs& args, cudaStream_t stream) {
  const auto launch = [&](void (*kernel)(SwigluQuantizeKernelArgs)) {
    return Launch(
        kernel,
        {.grid = dim3(static_cast<unsigned>(args.gated.tokens)), .block = dim3(kRowThreads)},
        stream, args);
  };
  constexpr int kWord = kRowThreads * kCodeWidth;  // of all threads
  static_assert(kSwigluQuantizeKept == 8 * kWord);
  if (args.gated.size <= 2 * kWord) return launch(SwigluQuantizeRow<2>);
  return launch(args.gated.size <= 4 * kWord ? SwigluQuantizeRow<4> : SwigluQuantizeRow<8>);
}

}  // namespace

cudaError_t LaunchSwigluQuantize(RowUnit unit, const SwigluQuantizeKernelArgs& args,
                                 cudaStream_t stream) {
  if (unit == RowUnit::kToken) return LaunchRow(args, stream);
  constexpr int kPerBlock = kWordThreads * kCodeWidth;
  const int blocks_per_row = (args.gated.size + kPerBlock - 1) / kPerBlock;
  return Launch(unit == RowUnit::kGroup ? SwigluQuantizeWords<RowUnit::kGroup>
                                        : SwigluQuantizeWords<RowUnit::kGiven>,
                {.grid = dim3(static_cast<unsigned>(blocks_per_row * args.gated.tokens)),
                 .block = dim3(kWordThreads)},
                stream, args, blocks_per_row);
}

}  // namespace millrace
