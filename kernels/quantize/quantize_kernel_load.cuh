// Eight elements of x at a time.
#ifndef KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_
#define KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_

#include "kernels/ptx/vector.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/quantize/quantize_kernel.h"

namespace millrace {

inline constexpr int kQuantizeThreads = 256;

// Elements i to i + 7 of a token; zeros past its end.
template <typename T>
__device__ __forceinline__ Floats<kCodeWidth> LoadEight(const QuantizeKernelArgs& args, int token,
                                                        int i) {
  const T* const from = static_cast<const T*>(args.x) + token * args.x_stride + i;
  Floats<kCodeWidth> x = {};
  if (!args.vectors) {
#pragma unroll
    for (int j = 0; j < kCodeWidth; ++j) {
      if (i + j < args.size) x.v[j] = Widened(LoadVec<1>(from + j)).v[0];
    }
  } else if (i < args.size) {
    constexpr int kPiece = 16 / sizeof(T);
#pragma unroll
    for (int p = 0; p < kCodeWidth / kPiece; ++p) {
      const auto piece = Widened(LoadVec<kPiece>(from + p * kPiece));
#pragma unroll
      for (int j = 0; j < kPiece; ++j) x.v[p * kPiece + j] = piece.v[j];
    }
  }
  return x;
}

// The scale of all: given, or that of `count` maxima. Every thread of the block calls it; a scale
// that is not given is stored by the first block.
__device__ __forceinline__ float ScaleOfAll(const CodeArgs& args, const float* maxima, int count) {
  if (args.rounding == CodeScale::kGiven) return *args.scale;
  float amax = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kQuantizeThreads) {
    amax = fmaxf(amax, maxima[i]);
  }
  const float scale = ScaleOf(BlockMax(amax), args);
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.scale = scale;
  return scale;
}

// In quantize_kernel_turned.cu.
cudaError_t LaunchQuantizeTurnedTensor(const QuantizeKernelArgs& args, const float* maxima,
                                       int count, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_
