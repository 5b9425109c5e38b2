// Sixteen lanes take eight elements each, a group of 128. Rows of aligned bf16: a block a token, in
// registers. Others: of groups, a block has 16 tokens x four groups; of tokens, a token, read
// twice. Tensor: the maxima of all blocks first, then a second kernel, which begins with what the
// first read last and L2 may still have. Bound by memory.
#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/quantize/quantize_kernel.h"
#include "kernels/quantize/quantize_kernel_load.cuh"

namespace millrace {
namespace {

constexpr int kThreads = kQuantizeThreads;
constexpr int kBlockTokens = kThreads / kCodeGroupLanes;
constexpr int kBlockGroups = 4;
constexpr int kStep = kThreads * kCodeWidth;  // elements of a row that a block takes at once

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeGroups(const __grid_constant__ QuantizeKernelArgs args, int blocks_per_row) {
  WaitForPriorGrid();
  StartNextGrid();
  const int row = static_cast<int>(blockIdx.x) / blocks_per_row;
  const int col = static_cast<int>(blockIdx.x) - row * blocks_per_row;
  const int token = row * kBlockTokens + threadIdx.x / kCodeGroupLanes;
  const int lane = threadIdx.x % kCodeGroupLanes;
  const int first = col * kBlockGroups * kCodeGroup + lane * kCodeWidth;
  const bool in = token < args.tokens;
  Floats<kCodeWidth> x[kBlockGroups];
#pragma unroll
  for (int g = 0; g < kBlockGroups; ++g) {
    x[g] = in ? LoadEight<Traits>(args, token, first + g * kCodeGroup) : Floats<kCodeWidth>{};
  }
#pragma unroll
  for (int g = 0; g < kBlockGroups; ++g) {
    const int i = first + g * kCodeGroup;
    const float scale = ScaleOf(GroupMax(Amax(x[g])), args.out);
    if (!in || i >= args.size) continue;
    if (lane == 0) args.out.scale[i / kCodeGroup * args.out.scale_stride + token] = scale;
    StoreEight<Traits>(args.out, token, i, Encode(x[g], InverseOf(scale), args.out.e5m2));
  }
}

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeTokens(const __grid_constant__ QuantizeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.x);
  const int first = static_cast<int>(threadIdx.x) * kCodeWidth;
  float amax = 0;
  for (int i = first; i < args.size; i += kStep) {
    amax = fmaxf(amax, Amax(LoadEight<Traits>(args, token, i)));
  }
  const float scale = ScaleOf(BlockMax(amax), args.out);
  if (threadIdx.x == 0) args.out.scale[token] = scale;
  const float inverse = InverseOf(scale);
  for (int i = first; i < args.size; i += kStep) {
    StoreEight<Traits>(args.out, token, i,
                       Encode(LoadEight<Traits>(args, token, i), inverse, args.out.e5m2));
  }
}

template <RowUnit kUnit, int kWords>
__global__ void __launch_bounds__(kThreads)
    QuantizeKept(const __grid_constant__ QuantizeKernelArgs args) {
  StartNextGridEarly();
  WaitForPriorGrid();
  StartNextGrid();
  const auto* const row =
      static_cast<const __nv_bfloat16*>(args.x) + static_cast<int64_t>(blockIdx.x) * args.x_stride;
  Vec<__nv_bfloat16, kCodeWidth> x[kWords];
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = static_cast<int>(threadIdx.x) * kCodeWidth + n * kStep;
    x[n] = {};
    if (i < args.size) x[n] = LoadVec<kCodeWidth>(row + i);
  }
  StoreRow<kUnit>(args.out, blockIdx.x, kStep, x);
}

// maxima[block]: of tokens block, block + blocks, ...
template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    FindMaxima(const __grid_constant__ QuantizeKernelArgs args, float* maxima) {
  WaitForPriorGrid();
  StartNextGrid();
  float amax = 0;
  for (int token = static_cast<int>(blockIdx.x); token < args.tokens; token += gridDim.x) {
#pragma unroll(Traits::kAligned ? 4 : 1)
    for (int i = static_cast<int>(threadIdx.x) * kCodeWidth; i < args.size; i += kStep) {
      amax = fmaxf(amax, Amax(LoadEight<Traits>(args, token, i)));
    }
  }
  amax = BlockMax(amax);
  if (threadIdx.x == 0) maxima[blockIdx.x] = amax;
}

template <typename Traits>
__global__ void __launch_bounds__(kThreads)
    QuantizeTensor(const __grid_constant__ QuantizeKernelArgs args, const float* maxima,
                   int count) {
  WaitForPriorGrid();
  StartNextGrid();
  const float inverse = InverseOfAll(args.out, maxima, count);
  for (int token = args.tokens - 1 - static_cast<int>(blockIdx.x); token >= 0; token -= gridDim.x) {
    for (int i = static_cast<int>(threadIdx.x) * kCodeWidth; i < args.size; i += kStep) {
      StoreEight<Traits>(args.out, token, i,
                         Encode(LoadEight<Traits>(args, token, i), inverse, args.out.e5m2));
    }
  }
}

LaunchShape Blocks(int64_t count) {
  return {.grid = dim3(static_cast<unsigned>(count)), .block = dim3(kThreads)};
}

using Kernel = void (*)(QuantizeKernelArgs);

// Of a row in registers, or null where it does not fit.
template <RowUnit kUnit>
Kernel ChooseKept(const QuantizeKernelArgs& args) {
  const int words = (args.size + kStep - 1) / kStep;
  if (!args.x_bf16 || !args.aligned || words > 8) return nullptr;
  if (words <= 2) return QuantizeKept<kUnit, 2>;
  return words <= 4 ? QuantizeKept<kUnit, 4> : QuantizeKept<kUnit, 8>;
}

template <typename... Params>
using Kernels = QuantizeKernels<void (*)(QuantizeKernelArgs, Params...)>;

constexpr Kernels<int> kGroups = {QuantizeGroups<QuantizeF32>, QuantizeGroups<QuantizeF32Aligned>,
                                  QuantizeGroups<QuantizeBf16>,
                                  QuantizeGroups<QuantizeBf16Aligned>};
constexpr Kernels<> kTokens = {QuantizeTokens<QuantizeF32>, QuantizeTokens<QuantizeF32Aligned>,
                               QuantizeTokens<QuantizeBf16>, QuantizeTokens<QuantizeBf16Aligned>};
constexpr Kernels<float*> kMaxima = {FindMaxima<QuantizeF32>, FindMaxima<QuantizeF32Aligned>,
                                     FindMaxima<QuantizeBf16>, FindMaxima<QuantizeBf16Aligned>};
constexpr Kernels<const float*, int> kTensor = {
    QuantizeTensor<QuantizeF32>, QuantizeTensor<QuantizeF32Aligned>, QuantizeTensor<QuantizeBf16>,
    QuantizeTensor<QuantizeBf16Aligned>};

}  // namespace

cudaError_t LaunchQuantizeGroups(const QuantizeKernelArgs& args, cudaStream_t stream) {
  if (const Kernel kept = ChooseKept<RowUnit::kGroup>(args); kept != nullptr) {
    return Launch(kept, Blocks(args.tokens), stream, args);
  }
  constexpr int kCols = kBlockGroups * kCodeGroup;
  const int cols = (args.size + kCols - 1) / kCols;
  const int rows = (args.tokens + kBlockTokens - 1) / kBlockTokens;
  return Launch(kGroups.For(args), Blocks(int64_t{rows} * cols), stream, args, cols);
}

cudaError_t LaunchQuantizeTokens(const QuantizeKernelArgs& args, cudaStream_t stream) {
  const Kernel kept = ChooseKept<RowUnit::kToken>(args);
  return Launch(kept != nullptr ? kept : kTokens.For(args), Blocks(args.tokens), stream, args);
}

cudaError_t LaunchQuantizeTensor(const QuantizeKernelArgs& args, float* maxima,
                                 cudaStream_t stream) {
  const int blocks = args.tokens < 1                 ? 1
                     : args.tokens < kQuantizeMaxima ? args.tokens
                                                     : kQuantizeMaxima;
  if (args.out.rounding != CodeScale::kGiven) {
    const cudaError_t error = Launch(kMaxima.For(args), Blocks(blocks), stream, args, maxima);
    if (error != cudaSuccess) return error;
  }
  if (args.transposed) return LaunchQuantizeTurnedTensor(args, maxima, blocks, stream);
  return Launch(kTensor.For(args), Blocks(blocks), stream, args, static_cast<const float*>(maxima),
                blocks);
}

}  // namespace millrace
