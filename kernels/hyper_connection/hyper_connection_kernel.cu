// What follows from a token's sums (hyper_connection_kernel_mix.cu): its weights and, with them,
// the streams collapsed. A block a token, or with few tokens a block a token and 256 words of its
// row, each adding up the sums for itself. Eight warps collapse; a ninth, of one block a token,
// works out post and comb beside them, for Sinkhorn's iterations are one long chain.
#include "kernels/hyper_connection/hyper_connection_kernel.h"
#include "kernels/hyper_connection/hyper_connection_kernel_streams.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = kHyperThreads / 32;
constexpr int kMaxStreams = 8;
constexpr int kMaxRows = (2 + kMaxStreams) * kMaxStreams;
// Up to here a row has several blocks: one a multiprocessor and more.
constexpr int kSplitRowTokens = 64;

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// The groups' sums, by all threads but those of the ninth warp. groups: [groups][rows + 1].
__device__ __forceinline__ void SumGroups(const HyperCollapseKernelArgs& args, float* groups) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = args.rows + 1;
  const float* sums = args.sums + static_cast<int64_t>(blockIdx.x) * args.parts * columns;
  for (int first = warp * args.group_parts; first < args.parts;
       first += kWarps * args.group_parts) {
    const int size = min(args.group_parts, args.parts - first);
    for (int r = lane; r < columns; r += 32) {
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < size; ++i) sum += sums[(first + i) * columns + r];
      groups[first / args.group_parts * columns + r] = sum;
    }
  }
}

// mixes <- fn . z / sqrt(mean(z^2) + norm_eps), by one warp.
__device__ __forceinline__ void Mixes(const HyperCollapseKernelArgs& args, const float* groups,
                                      float* mixes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = args.rows + 1;
  const int count = (args.parts + args.group_parts - 1) / args.group_parts;
  for (int r = lane; r < columns; r += 32) {
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum += groups[i * columns + r];
    mixes[r] = sum;
  }
  __syncwarp();
  const float size = static_cast<float>(args.streams.count * args.streams.width);
  const float norm = rsqrtf(mixes[args.rows] / size + args.norm_eps);
  for (int r = lane; r < args.rows; r += 32) mixes[r] *= norm;
  __syncwarp();
}

// The rows of the mixing matrix, one a lane (lanes beyond kStreams repeat them), made doubly
// stochastic. Streams that are not there mix with themselves alone.
template <int kStreams>
struct MixingRow {
  float c[kStreams];

  __device__ __forceinline__ MixingRow(const HyperCollapseKernelArgs& args, const float* mixes,
                                       int row) {
    const int count = args.streams.count;
    const int first = 2 * count + row * count;
    float top = -INFINITY;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      const bool there = row < count && k < count;
      c[k] = there ? mixes[first + k] * args.scale[2] + args.base[first + k] : -INFINITY;
      top = fmaxf(top, c[k]);
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) sum += c[k] = expf(c[k] - top);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      c[k] = row < count && k < count ? c[k] / sum + args.hc_eps : (row == k ? 1.0f : 0.0f);
    }
  }

  __device__ __forceinline__ void DivideRows(float eps) {
    float sum = eps;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) sum += c[k];
    const float factor = __fdividef(1.0f, sum);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[k] *= factor;
  }

  __device__ __forceinline__ void DivideColumns(float eps) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      float sum = c[k];
#pragma unroll
      for (int d = 1; d < kStreams; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
      c[k] *= __fdividef(1.0f, sum + eps);
    }
  }
};

// By the ninth warp.
template <int kStreams>
__device__ __forceinline__ void StorePostAndComb(const HyperCollapseKernelArgs& args,
                                                 const float* mixes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int count = args.streams.count;
  MixingRow<kStreams> row(args, mixes, lane % kStreams);
  row.DivideColumns(args.hc_eps);
  for (int i = 1; i < args.sinkhorn_iters; ++i) {
    row.DivideRows(args.hc_eps);
    row.DivideColumns(args.hc_eps);
  }
  if (lane >= count) return;
  const float post = mixes[count + lane] * args.scale[1] + args.base[count + lane];
  args.post[blockIdx.x * args.post_stride + lane] = 2.0f * Sigmoid(post);
  float* comb = args.comb + blockIdx.x * args.comb_token_stride + lane * args.comb_stride;
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    if (k < count) comb[k] = row.c[k];
  }
}

template <typename Traits, int kStreams>
__device__ __forceinline__ typename Traits::Word Collapsed(
    const typename Traits::Word (&words)[kStreams], const float (&pre)[kStreams]) {
  Floats<Traits::kWidth> sum = {};
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    const Floats<Traits::kWidth> z = Widened(words[j]);
#pragma unroll
    for (int e = 0; e < Traits::kWidth; ++e) sum.v[e] = fmaf(pre[j], z.v[e], sum.v[e]);
  }
  return Narrowed<typename Traits::Element>(sum);
}

// Room for kStreams streams.
template <typename Traits, int kStreams>
__global__ void __launch_bounds__(kHyperThreads + 32)
    Collapse(const __grid_constant__ HyperCollapseKernelArgs args) {
  using T = typename Traits::Element;
  extern __shared__ float groups[];
  __shared__ float mixes[kMaxRows + 1];
  __shared__ float weights[kStreams];
  const bool collapses = threadIdx.x < kHyperThreads;
  const int width = args.streams.width;
  int i = collapses ? FirstElement<Traits>() : width;
  const T* rows = TokenStreams<Traits>(args.streams);
  WaitForPriorGrid();
  StartNextGrid();
  typename Traits::Word words[kStreams];
  if (i < width) LoadWords<Traits>(args.streams, rows, i, words);
  if (collapses) SumGroups(args, groups);
  __syncthreads();
  if (threadIdx.x < 32) {
    Mixes(args, groups, mixes);
    const int j = static_cast<int>(threadIdx.x);
    if (j < args.streams.count) {
      weights[j] = Sigmoid(mixes[j] * args.scale[0] + args.base[j]) + args.hc_eps;
    } else if (j < kStreams) {
      weights[j] = 0;
    }
  }
  __syncthreads();
  if (!collapses) {
    if (blockIdx.y == 0) StorePostAndComb<kStreams>(args, mixes);
    return;
  }
  float pre[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) pre[j] = weights[j];
  T* y = static_cast<T*>(args.y) + blockIdx.x * args.y_stride;
  while (i < width) {
    StoreVec(y + i, Collapsed<Traits>(words, pre));
    i += ElementStep<Traits>();
    if (i < width) LoadWords<Traits>(args.streams, rows, i, words);
  }
}

template <typename Traits>
cudaError_t LaunchCollapse(const HyperCollapseKernelArgs& args, cudaStream_t stream) {
  const int groups = (args.parts + args.group_parts - 1) / args.group_parts;
  const bool split = args.streams.tokens <= kSplitRowTokens;
  return Launch(args.streams.count <= 4 ? Collapse<Traits, 4> : Collapse<Traits, 8>,
                {.grid = dim3(static_cast<unsigned>(args.streams.tokens),
                              split ? RowBlocks<Traits>(args.streams.width) : 1),
                 .block = dim3(args.post == nullptr ? kHyperThreads : kHyperThreads + 32),
                 .shared_bytes = static_cast<size_t>(HyperCollapseSharedBytes(groups, args.rows))},
                stream, args);
}

}  // namespace

cudaError_t LaunchHyperCollapse(HyperElements elements, const HyperCollapseKernelArgs& args,
                                cudaStream_t stream) {
  switch (elements) {
    case HyperElements::kF32:
      return LaunchCollapse<HyperF32>(args, stream);
    case HyperElements::kBf16:
      return LaunchCollapse<HyperBf16>(args, stream);
    case HyperElements::kBf16Vector:
      break;
  }
  return LaunchCollapse<HyperBf16Vector>(args, stream);
}

}  // namespace millrace
