// What the kernels that move streams share. For .cu files of this folder.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_STREAMS_CUH_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_STREAMS_CUH_

#include <cuda_bf16.h>

#include "kernels/hyper_connection/hyper_connection_kernel.h"
#include "kernels/ptx/vector.cuh"

namespace millrace {

inline constexpr int kHyperThreads = 256;  // that take words of a token's row

template <typename E, int kElements>
struct HyperTraits {
  using Element = E;
  static constexpr int kWidth = kElements;  // of a word
  using Word = Vec<E, kElements>;
};
using HyperF32 = HyperTraits<float, 1>;
using HyperBf16 = HyperTraits<__nv_bfloat16, 1>;
using HyperBf16Vector = HyperTraits<__nv_bfloat16, 8>;

// This thread's words of a token's row: elements first, first + step and so on.
template <typename Traits>
__device__ __forceinline__ int FirstElement() {
  return static_cast<int>(blockIdx.y * kHyperThreads + threadIdx.x) * Traits::kWidth;
}
template <typename Traits>
__device__ __forceinline__ int ElementStep() {
  return static_cast<int>(gridDim.y) * kHyperThreads * Traits::kWidth;
}

template <typename Traits>
__device__ __forceinline__ typename Traits::Element* TokenStreams(const HyperStreams& streams,
                                                                  int token) {
  return static_cast<typename Traits::Element*>(streams.data) + token * streams.token_stride;
}

// Element i and on of each stream; of those that are not there, zeros.
template <typename Traits, int kStreams>
__device__ __forceinline__ void LoadWords(const HyperStreams& streams,
                                          const typename Traits::Element* rows, int i,
                                          typename Traits::Word (&words)[kStreams]) {
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    words[j] = {};
    if (j < streams.count) words[j] = LoadVec<Traits::kWidth>(rows + j * streams.stride + i);
  }
}

// Blocks along a row of `width` elements.
template <typename Traits>
unsigned RowBlocks(int width) {
  constexpr int kSpan = kHyperThreads * Traits::kWidth;
  return static_cast<unsigned>((width + kSpan - 1) / kSpan);
}

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_KERNEL_STREAMS_CUH_
