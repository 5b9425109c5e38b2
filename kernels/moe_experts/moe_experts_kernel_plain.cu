// Experts of any format and shape, on any GPU: a warp an output of a choice. Not tuned.
#include <cstdint>

#include "kernels/moe_experts/moe_experts_kernel.h"
#include "kernels/moe_experts/moe_experts_kernel_gate.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/stored_matrix/stored_value.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// Rows of floats from rows of x, or in place, rounded where that is asked for: a warp 128 channels.
struct Rows {
  ActivationRows from;
  float* to;
  const int32_t* count;  // how many there are; null: as many as the grid has
};

__global__ void __launch_bounds__(kThreads) MoePrepareKernel(Rows rows, bool rounds) {
  WaitForPriorGrid();
  StartNextGrid();
  const int row = static_cast<int>(blockIdx.y), cols = rows.from.cols;
  const int group = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group * kCodeGroup >= cols || (rows.count && row >= *rows.count)) return;
  ActivationGroup values(rows.from, row, group);
  if (rounds) values.Round();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = values.Column(group, i);
    if (col < cols) rows.to[int64_t{row} * cols + col] = values.x[i];
  }
}

template <StoredFormat kFormat>
__device__ float Dot(const StoredMatrixArgs& m, int expert, int row, const float* x) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < m.cols; i += 32) {
    sum += StoredValue<kFormat>(m, expert, row, i) * x[i];
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  return sum;
}

// Grid: outputs by places.
template <StoredFormat kFormat, bool kGateUp>
__global__ void __launch_bounds__(kThreads)
    MoePlainKernel(const __grid_constant__ MoeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int place = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const StoredMatrixArgs& m = kGateUp ? args.gate : args.down;
  if (place >= args.plan.sizes[kMoeChoices] || row >= m.rows) return;
  const int choice = args.plan.order[place];
  const int token = choice / args.chosen, k = choice % args.chosen;
  const int expert = args.experts[token * args.experts_stride + k] - args.first_expert;
  float result;
  if constexpr (kGateUp) {
    const float* const x = args.prepared + int64_t{token} * m.cols;
    const float gate = Dot<kFormat>(m, expert, row, x);
    const float up = Dot<kFormat>(args.up, expert, row, x);
    result = MoeGated(gate, up, args.limit) * args.weights[token * args.weights_stride + k];
  } else {
    result = Dot<kFormat>(m, expert, row, args.hidden + int64_t{place} * m.cols);
  }
  float* const to = kGateUp ? args.hidden : args.sums;
  if (threadIdx.x % 32 == 0) to[int64_t{place} * m.rows + row] = result;
}

dim3 Grid(int wide, int each, int tall) {
  return dim3(static_cast<unsigned>((wide + each - 1) / each), static_cast<unsigned>(tall));
}

cudaError_t Prepare(const Rows& rows, bool rounds, int count, cudaStream_t stream) {
  return Launch(MoePrepareKernel,
                {.grid = Grid(rows.from.cols, kWarps * kCodeGroup, count), .block = dim3(kThreads)},
                stream, rows, rounds);
}

template <bool kGateUp>
cudaError_t LaunchPlain(const MoeKernelArgs& args, cudaStream_t stream) {
  const StoredMatrixArgs& m = kGateUp ? args.gate : args.down;
  const auto launch = [&](auto kernel) {
    return Launch(
        kernel, {.grid = Grid(m.rows, kWarps, args.tokens * args.chosen), .block = dim3(kThreads)},
        stream, args);
  };
  switch (m.format) {
    case StoredFormat::kF32:
      return launch(MoePlainKernel<StoredFormat::kF32, kGateUp>);
    case StoredFormat::kBF16:
      return launch(MoePlainKernel<StoredFormat::kBF16, kGateUp>);
    case StoredFormat::kFp8:
      return launch(MoePlainKernel<StoredFormat::kFp8, kGateUp>);
    case StoredFormat::kMxFp4:
      return launch(MoePlainKernel<StoredFormat::kMxFp4, kGateUp>);
    case StoredFormat::kNvFp4:
      return launch(MoePlainKernel<StoredFormat::kNvFp4, kGateUp>);
  }
  return cudaErrorInvalidValue;
}

bool Rounds(const MoeKernelArgs& args, const StoredMatrixArgs& m) {
  return args.rounds && m.format != StoredFormat::kF32 && m.format != StoredFormat::kBF16;
}

}  // namespace

cudaError_t LaunchMoePlainGateUp(const MoeKernelArgs& args, cudaStream_t stream) {
  const Rows rows = {{args.x, args.x_stride, args.gate.cols, args.x_bf16}, args.prepared, nullptr};
  const cudaError_t error = Prepare(rows, Rounds(args, args.gate), args.tokens, stream);
  return error == cudaSuccess ? LaunchPlain<true>(args, stream) : error;
}

cudaError_t LaunchMoePlainDown(const MoeKernelArgs& args, cudaStream_t stream) {
  if (Rounds(args, args.down)) {
    const Rows rows = {{args.hidden, args.down.cols, args.down.cols, false},
                       args.hidden,
                       args.plan.sizes + kMoeChoices};
    const cudaError_t error = Prepare(rows, true, args.tokens * args.chosen, stream);
    if (error != cudaSuccess) return error;
  }
  return LaunchPlain<false>(args, stream);
}

}  // namespace millrace
