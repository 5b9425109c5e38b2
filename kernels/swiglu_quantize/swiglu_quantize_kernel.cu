// Groups, or a given scale: each thread two words of eight outputs; sixteen lanes have a group.
// Tokens: a block a token, the row in registers until its largest magnitude is known. Loads come
// first: what follows them is long. Bound by memory.
#include "kernels/ptx/early_start.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/swiglu/gated.cuh"
#include "kernels/swiglu_quantize/swiglu_quantize_kernel.h"

namespace millrace {
namespace {

constexpr int kWordThreads = 128;
constexpr int kWordsAtOnce = 2;
using Words = GateUpWords<__nv_bfloat16, kCodeWidth>;

// Words n of a thread: outputs first + n * step and on of a token; zeros past its end.
template <int kWords>
__device__ __forceinline__ void LoadWords(const SwigluKernelArgs& args, int token, int2 first_step,
                                          Words (&x)[kWords]) {
#pragma unroll
  for (int n = 0; n < kWords; ++n) {
    const int i = first_step.x + n * first_step.y;
    x[n] = {};
    if (i < args.size) x[n] = LoadGateUp<__nv_bfloat16, kCodeWidth>(args, token, i);
  }
}

template <RowUnit kUnit>
__global__ void __launch_bounds__(kWordThreads)
    SwigluQuantizeWords(const __grid_constant__ SwigluQuantizeKernelArgs args, int blocks_per_row) {
  StartNextGridEarly();
  WaitForPriorGrid();
  StartNextGrid();
  constexpr int kStep = kWordThreads * kCodeWidth;
  const int token = static_cast<int>(blockIdx.x) / blocks_per_row;
  const int chunk = static_cast<int>(blockIdx.x) - token * blocks_per_row;
  const int first = chunk * kWordsAtOnce * kStep + static_cast<int>(threadIdx.x) * kCodeWidth;
  Words x[kWordsAtOnce];
  LoadWords(args.gated, token, {first, kStep}, x);
#pragma unroll
  for (int n = 0; n < kWordsAtOnce; ++n) {
    const int i = first + n * kStep;
    const bool in = i < args.gated.size;
    const auto y = Widened(Gated(x[n], args.gated.limit));
    if constexpr (kUnit == RowUnit::kGroup) {
      StoreGroup(args.out, token, i, in, y);
    } else if (in) {
      StoreAligned(args.out, token, i, Encode(y, __frcp_rn(*args.out.scale), args.out.e5m2));
    }
  }
}

template <int kWords, int kMaxThreads>
__global__ void __launch_bounds__(kMaxThreads)
    SwigluQuantizeRow(const __grid_constant__ SwigluQuantizeKernelArgs args) {
  StartNextGridEarly();
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.x);
  const int step = static_cast<int>(blockDim.x) * kCodeWidth;
  Words x[kWords];
  LoadWords(args.gated, token, {static_cast<int>(threadIdx.x) * kCodeWidth, step}, x);
  Vec<__nv_bfloat16, kCodeWidth> y[kWords];
#pragma unroll
  for (int n = 0; n < kWords; ++n) y[n] = Gated(x[n], args.gated.limit);
  StoreRow<RowUnit::kToken>(args.out, token, step, y);
}

template <int kWords, int kMaxThreads>
cudaError_t LaunchRow(const SwigluQuantizeKernelArgs& args, cudaStream_t stream) {
  constexpr int kWarpElements = 32 * kWords * kCodeWidth;
  const int warps = (args.gated.size + kWarpElements - 1) / kWarpElements;
  return Launch(SwigluQuantizeRow<kWords, kMaxThreads>,
                {.grid = dim3(static_cast<unsigned>(args.gated.tokens)),
                 .block = dim3(static_cast<unsigned>(32 * warps))},
                stream, args);
}

}  // namespace

cudaError_t LaunchSwigluQuantize(RowUnit unit, const SwigluQuantizeKernelArgs& args,
                                 cudaStream_t stream) {
  static_assert(kSwigluQuantizeKept == 512 * 4 * kCodeWidth);
  if (unit == RowUnit::kToken) {
    return args.gated.size <= 256 * 2 * kCodeWidth ? LaunchRow<2, 256>(args, stream)
                                                   : LaunchRow<4, 512>(args, stream);
  }
  constexpr int kPerBlock = kWordThreads * kWordsAtOnce * kCodeWidth;
  const int blocks_per_row = (args.gated.size + kPerBlock - 1) / kPerBlock;
  return Launch(unit == RowUnit::kGroup ? SwigluQuantizeWords<RowUnit::kGroup>
                                        : SwigluQuantizeWords<RowUnit::kGiven>,
                {.grid = dim3(static_cast<unsigned>(blocks_per_row * args.gated.tokens)),
                 .block = dim3(kWordThreads)},
                stream, args, blocks_per_row);
}

}  // namespace millrace
