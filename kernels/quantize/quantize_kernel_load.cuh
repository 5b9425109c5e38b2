// Eight elements of x, and eight codes, at a time.
#ifndef KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_
#define KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_

#include "kernels/ptx/vector.cuh"
#include "kernels/quantize/encode.cuh"
#include "kernels/quantize/quantize_kernel.h"

namespace millrace {

inline constexpr int kQuantizeThreads = 256;

// How a kernel reads x: its elements, and whether QuantizeKernelArgs::aligned holds.
template <typename T, bool kAreAligned>
struct QuantizeTraits {
  using Element = T;
  static constexpr bool kAligned = kAreAligned;
};

// Elements i to i + 7 of a token; zeros past its end.
template <typename Traits>
__device__ __forceinline__ Floats<kCodeWidth> LoadEight(const QuantizeKernelArgs& args, int token,
                                                        int i) {
  using T = typename Traits::Element;
  const T* const from = static_cast<const T*>(args.x) + token * args.x_stride + i;
  Floats<kCodeWidth> x = {};
  if constexpr (!Traits::kAligned) {
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

// Codes i to i + 7 of a row, or what there is of them.
template <typename Traits>
__device__ __forceinline__ void StoreEight(const CodeArgs& args, int64_t row, int i, uint2 codes) {
  if constexpr (Traits::kAligned) {
    if (i < args.size) StoreAligned(args, row, i, codes);
  } else {
    uint8_t* const to = args.codes + row * args.codes_stride + i;
#pragma unroll
    for (int j = 0; j < kCodeWidth; ++j) {
      if (i + j < args.size) to[j] = CodeAt(codes, j);
    }
  }
}

// 1 / the scale of all: given, or that of `count` maxima. Every thread of the block calls it; a
// scale that is not given is stored by the first block.
__device__ __forceinline__ float InverseOfAll(const CodeArgs& args, const float* maxima,
                                              int count) {
  if (args.rounding == CodeScale::kGiven) return __frcp_rn(*args.scale);
  float amax = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kQuantizeThreads) {
    amax = fmaxf(amax, maxima[i]);
  }
  const float scale = ScaleOf(BlockMax(amax), args);
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.scale = scale;
  return InverseOf(scale);
}

// The kernel for these arguments, of a template over the traits.
template <typename Fn>
struct QuantizeKernels {
  Fn f32, f32_aligned, bf16, bf16_aligned;
  Fn For(const QuantizeKernelArgs& args) const {
    if (args.x_bf16) return args.aligned ? bf16_aligned : bf16;
    return args.aligned ? f32_aligned : f32;
  }
};
using QuantizeF32 = QuantizeTraits<float, false>;
using QuantizeF32Aligned = QuantizeTraits<float, true>;
using QuantizeBf16 = QuantizeTraits<__nv_bfloat16, false>;
using QuantizeBf16Aligned = QuantizeTraits<__nv_bfloat16, true>;

// In quantize_kernel_turned.cu.
cudaError_t LaunchQuantizeTurnedTensor(const QuantizeKernelArgs& args, const float* maxima,
                                       int count, cudaStream_t stream);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_KERNEL_LOAD_CUH_
