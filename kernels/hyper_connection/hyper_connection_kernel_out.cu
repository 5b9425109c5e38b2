// HyperConnectionBegin and HyperConnectionOut: a block a token and 256 words of its rows, each read
// once and written once. Memory-bound.
#include "kernels/hyper_connection/hyper_connection_kernel.h"
#include "kernels/hyper_connection/hyper_connection_kernel_streams.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

template <typename Traits>
__global__ void __launch_bounds__(kHyperThreads)
    Begin(const __grid_constant__ HyperBeginKernelArgs args) {
  using T = typename Traits::Element;
  const int i = FirstElement<Traits>();
  const T* x = static_cast<const T*>(args.x) + blockIdx.x * args.x_stride;
  T* rows = TokenStreams<Traits>(args.streams, static_cast<int>(blockIdx.x));
  WaitForPriorGrid();
  StartNextGrid();
  if (i >= args.streams.width) return;
  const auto word = LoadVec<Traits::kWidth>(x + i);
  for (int j = 0; j < args.streams.count; ++j) StoreVec(rows + j * args.streams.stride + i, word);
}

// Room for kStreams streams.
template <typename Traits, int kStreams>
__global__ void __launch_bounds__(kHyperThreads)
    Out(const __grid_constant__ HyperOutKernelArgs args) {
  using T = typename Traits::Element;
  constexpr int kWidth = Traits::kWidth;
  // post, then comb; zeros where a stream is not there.
  __shared__ float weights[kStreams + 1][kStreams];
  const int count = args.streams.count;
  const int i = FirstElement<Traits>();
  const bool inside = i < args.streams.width;
  const T* out = static_cast<const T*>(args.out) + blockIdx.x * args.out_stride;
  T* rows = TokenStreams<Traits>(args.streams, static_cast<int>(blockIdx.x));
  WaitForPriorGrid();
  StartNextGrid();
  typename Traits::Word added, old[kStreams];
  if (inside) {
    added = LoadVec<kWidth>(out + i);
    LoadWords<Traits>(args.streams, rows, i, old);
  }
  if (threadIdx.x < kStreams * (kStreams + 1)) {
    const int j = static_cast<int>(threadIdx.x) / kStreams - 1;
    const int k = static_cast<int>(threadIdx.x) % kStreams;
    const float* from =
        j < 0 ? args.post + blockIdx.x * args.post_stride
              : args.comb + blockIdx.x * args.comb_token_stride + j * args.comb_stride;
    weights[j + 1][k] = j < count && k < count ? from[k] : 0.0f;
  }
  __syncthreads();
  if (!inside) return;
#pragma unroll 1  // else words are kept widened, and fewer blocks fit
  for (int k = 0; k < count; ++k) {
    Floats<kWidth> sum = Widened(added);
#pragma unroll
    for (int e = 0; e < kWidth; ++e) sum.v[e] *= weights[0][k];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const Floats<kWidth> z = Widened(old[j]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) sum.v[e] = fmaf(weights[j + 1][k], z.v[e], sum.v[e]);
    }
    StoreVec(rows + k * args.streams.stride + i, Narrowed<T>(sum));
  }
}

template <typename Traits>
LaunchShape ShapeOf(const HyperStreams& streams) {
  return {.grid = dim3(static_cast<unsigned>(streams.tokens), RowBlocks<Traits>(streams.width)),
          .block = dim3(kHyperThreads)};
}

template <typename Traits>
cudaError_t LaunchBegin(const HyperBeginKernelArgs& args, cudaStream_t stream) {
  return Launch(Begin<Traits>, ShapeOf<Traits>(args.streams), stream, args);
}

template <typename Traits>
cudaError_t LaunchOut(const HyperOutKernelArgs& args, cudaStream_t stream) {
  return Launch(args.streams.count <= 4 ? Out<Traits, 4> : Out<Traits, 8>,
                ShapeOf<Traits>(args.streams), stream, args);
}

}  // namespace

cudaError_t LaunchHyperBegin(HyperElements elements, const HyperBeginKernelArgs& args,
                             cudaStream_t stream) {
  switch (elements) {
    case HyperElements::kF32:
      return LaunchBegin<HyperF32>(args, stream);
    case HyperElements::kBf16:
      return LaunchBegin<HyperBf16>(args, stream);
    case HyperElements::kBf16Vector:
      break;
  }
  return LaunchBegin<HyperBf16Vector>(args, stream);
}

cudaError_t LaunchHyperOut(HyperElements elements, const HyperOutKernelArgs& args,
                           cudaStream_t stream) {
  switch (elements) {
    case HyperElements::kF32:
      return LaunchOut<HyperF32>(args, stream);
    case HyperElements::kBf16:
      return LaunchOut<HyperBf16>(args, stream);
    case HyperElements::kBf16Vector:
      break;
  }
  return LaunchOut<HyperBf16Vector>(args, stream);
}

}  // namespace millrace
