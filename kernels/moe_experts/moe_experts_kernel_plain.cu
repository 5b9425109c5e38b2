// Experts of any format and shape, on any GPU: a warp an output of a choice. Not tuned.
#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/moe_experts/moe_experts_kernel.h"
#include "kernels/moe_experts/moe_experts_kernel_gate.cuh"
#include "kernels/ptx/fp8.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/quantize/encode.cuh"

namespace millrace {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float E4M3Value(uint32_t code) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(WidenE4M3Pair(code))));
}

// 2^(code - 127), 255 a NaN.
__device__ float E8M0Value(uint32_t code) {
  if (code == 255) return __uint_as_float(0x7fffffffu);
  return __uint_as_float(code == 0 ? 0x00400000u : code << 23);
}

// Its bits are the top ones of an f16 that is 2^-14 as large.
__device__ float E2M1Value(uint32_t code) {
  const uint32_t half = (code & 8) << 12 | (code & 7) << 9;
  return __half2float(__ushort_as_half(static_cast<uint16_t>(half))) * 16384.0f;
}

template <MoeFormat kFormat>
__device__ float ValueAt(const MoeMatrices& m, int expert, int row, int col) {
  const int64_t at = (int64_t{expert} * m.rows + row) * m.cols + col;
  if constexpr (kFormat == MoeFormat::kF32) return static_cast<const float*>(m.values)[at];
  if constexpr (kFormat == MoeFormat::kBF16) {
    return __bfloat162float(static_cast<const __nv_bfloat16*>(m.values)[at]);
  }
  const uint8_t* const codes = static_cast<const uint8_t*>(m.values);
  const uint8_t* const scales = static_cast<const uint8_t*>(m.scales);
  const auto scale_at = [&](int r, int c) {
    return (int64_t{expert} * m.scale_rows + r) * m.scale_cols + c;
  };
  if constexpr (kFormat == MoeFormat::kFp8) {
    const int64_t scale = scale_at((m.tile_row + row) / 128, (m.tile_col + col) / 128);
    return E4M3Value(codes[at]) *
           (m.f32_scales ? static_cast<const float*>(m.scales)[scale] : E8M0Value(scales[scale]));
  }
  const float value = E2M1Value(codes[at / 2] >> (at % 2 * 4) & 15);
  if constexpr (kFormat == MoeFormat::kMxFp4) {
    return value * E8M0Value(scales[scale_at(row, col / 32)]);
  }
  const float scaled = value * E4M3Value(scales[scale_at(row, col / 16)]);
  const float factor = m.factors[expert];
  return m.divides ? scaled / factor : scaled * factor;
}

// Rows of floats from rows of x, or in place, rounded where that is asked for: a warp 128 channels.
struct Rows {
  const void* from;
  bool bf16;
  int64_t stride;
  float* to;
  int cols;
  const int32_t* count;  // how many there are; null: as many as the grid has
};

__global__ void __launch_bounds__(kThreads) MoePrepareKernel(Rows rows, bool rounds) {
  WaitForPriorGrid();
  StartNextGrid();
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(blockIdx.y);
  const int group = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (group * kCodeGroup >= rows.cols || (rows.count && row >= *rows.count)) return;
  float x[4];
  float amax = kMoeSmallestAmax;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = group * kCodeGroup + i * 32 + lane;
    const int64_t at = row * rows.stride + col;
    x[i] = 0;
    if (col < rows.cols) {
      x[i] = rows.bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(rows.from)[at])
                       : static_cast<const float*>(rows.from)[at];
    }
    amax = fmaxf(amax, fabsf(x[i]));
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, d));
  const float scale = MoeScaleOf(amax), inverse = InverseOf(scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = group * kCodeGroup + i * 32 + lane;
    if (col >= rows.cols) continue;
    if (rounds) x[i] = E4M3Value(EncodeE4M3Pair(x[i] * inverse, 0)) * scale;
    rows.to[int64_t{row} * rows.cols + col] = x[i];
  }
}

template <MoeFormat kFormat>
__device__ float Dot(const MoeMatrices& m, int expert, int row, const float* x) {
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < m.cols; i += 32) {
    sum += ValueAt<kFormat>(m, expert, row, i) * x[i];
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  return sum;
}

// Grid: outputs by places.
template <MoeFormat kFormat, bool kGateUp>
__global__ void __launch_bounds__(kThreads)
    MoePlainKernel(const __grid_constant__ MoeKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  const int place = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const MoeMatrices& m = kGateUp ? args.gate : args.down;
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
                {.grid = Grid(rows.cols, kWarps * kCodeGroup, count), .block = dim3(kThreads)},
                stream, rows, rounds);
}

template <bool kGateUp>
cudaError_t LaunchPlain(const MoeKernelArgs& args, cudaStream_t stream) {
  const MoeMatrices& m = kGateUp ? args.gate : args.down;
  const auto launch = [&](auto kernel) {
    return Launch(
        kernel, {.grid = Grid(m.rows, kWarps, args.tokens * args.chosen), .block = dim3(kThreads)},
        stream, args);
  };
  switch (m.format) {
    case MoeFormat::kF32:
      return launch(MoePlainKernel<MoeFormat::kF32, kGateUp>);
    case MoeFormat::kBF16:
      return launch(MoePlainKernel<MoeFormat::kBF16, kGateUp>);
    case MoeFormat::kFp8:
      return launch(MoePlainKernel<MoeFormat::kFp8, kGateUp>);
    case MoeFormat::kMxFp4:
      return launch(MoePlainKernel<MoeFormat::kMxFp4, kGateUp>);
    case MoeFormat::kNvFp4:
      return launch(MoePlainKernel<MoeFormat::kNvFp4, kGateUp>);
  }
  return cudaErrorInvalidValue;
}

bool Rounds(const MoeKernelArgs& args, const MoeMatrices& m) {
  return args.rounds && m.format != MoeFormat::kF32 && m.format != MoeFormat::kBF16;
}

}  // namespace

cudaError_t LaunchMoePlainGateUp(const MoeKernelArgs& args, cudaStream_t stream) {
  const Rows rows = {args.x, args.x_bf16, args.x_stride, args.prepared, args.gate.cols, nullptr};
  const cudaError_t error = Prepare(rows, Rounds(args, args.gate), args.tokens, stream);
  return error == cudaSuccess ? LaunchPlain<true>(args, stream) : error;
}

cudaError_t LaunchMoePlainDown(const MoeKernelArgs& args, cudaStream_t stream) {
  if (Rounds(args, args.down)) {
    const Rows rows = {args.hidden, false,          args.down.cols,
                       args.hidden, args.down.cols, args.plan.sizes + kMoeChoices};
    const cudaError_t error = Prepare(rows, true, args.tokens * args.chosen, stream);
    if (error != cudaSuccess) return error;
  }
  return LaunchPlain<false>(args, stream);
}

}  // namespace millrace
