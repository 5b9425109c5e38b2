// Any format and shape, on any GPU: activations as floats first, then a warp an output of a few
// tokens. Not tuned.
#include <cstdint>

#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/stored_linear/stored_linear_kernel.h"
#include "kernels/stored_linear/stored_linear_kernel_store.cuh"
#include "kernels/stored_matrix/stored_value.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTokens = 4;  // that share a widened weight

// Grid: groups of 128 channels, a warp each, by tokens.
__global__ void __launch_bounds__(kThreads)
    PrepareFloats(const __grid_constant__ StoredLinearKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int token = static_cast<int>(blockIdx.y), cols = args.weight.cols;
  const int group = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group * kCodeGroup >= cols) return;
  ActivationGroup values({args.x, args.x_stride, cols, args.x_bf16}, token, group);
  if (args.rounds) values.Round();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = values.Column(group, i);
    if (col < cols) static_cast<float*>(args.prepared)[int64_t{token} * cols + col] = values.x[i];
  }
}

// Grid: rows of the weight, a warp each, by tokens.
template <StoredFormat kFormat>
__global__ void __launch_bounds__(kThreads)
    PlainKernel(const __grid_constant__ StoredLinearKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int lane = static_cast<int>(threadIdx.x) % 32, cols = args.weight.cols;
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(blockIdx.y) * kTokens;
  if (row >= args.weight.rows) return;
  const float* x[kTokens];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    // Tokens past the last take its place: their sums are nobody's.
    x[t] =
        static_cast<const float*>(args.prepared) + int64_t{min(first + t, args.tokens - 1)} * cols;
  }
  float sums[kTokens] = {};
  for (int i = lane; i < cols; i += 32) {
    const float w = StoredValue<kFormat>(args.weight, 0, row, i);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) sums[t] = __fmaf_rn(w, x[t][i], sums[t]);
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sums[t] += __shfl_xor_sync(0xffffffffu, sums[t], d);
    if (lane == 0 && first + t < args.tokens) StoreOutput(args, first + t, row, sums[t]);
  }
}

void (*Choose(StoredFormat format))(StoredLinearKernelArgs) {
  switch (format) {
    case StoredFormat::kF32:
      return PlainKernel<StoredFormat::kF32>;
    case StoredFormat::kBF16:
      return PlainKernel<StoredFormat::kBF16>;
    case StoredFormat::kFp8:
      return PlainKernel<StoredFormat::kFp8>;
    case StoredFormat::kMxFp4:
      return PlainKernel<StoredFormat::kMxFp4>;
    case StoredFormat::kNvFp4:
      break;
  }
  return PlainKernel<StoredFormat::kNvFp4>;
}

dim3 Grid(int64_t wide, int64_t each, int64_t tall) {
  return dim3(static_cast<unsigned>((wide + each - 1) / each), static_cast<unsigned>(tall));
}

}  // namespace

cudaError_t LaunchStoredLinearPlain(const StoredLinearKernelArgs& args, cudaStream_t stream) {
  if (args.weight.cols > 0) {
    const cudaError_t error = Launch(
        PrepareFloats,
        {.grid = Grid(args.weight.cols, kWarps * kCodeGroup, args.tokens), .block = dim3(kThreads)},
        stream, args);
    if (error != cudaSuccess) return error;
  }
  return Launch(Choose(args.weight.format),
                {.grid = Grid(args.weight.rows, kWarps, (args.tokens + kTokens - 1) / kTokens),
                 .block = dim3(kThreads)},
                stream, args);
}

}  // namespace millrace
