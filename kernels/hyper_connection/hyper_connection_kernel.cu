// What follows from a token's sums (hyper_connection_kernel_mix.cu): its weights and, with them,
// the streams collapsed. Eight warps collapse; a ninth works out post and comb beside them, in the
// end a thread a token, for Sinkhorn's iterations are one long chain.
//
// CollapseFew: parts are pieces. A block a token and 256 words of its row, or all of the row, each
//   adding up the sums for itself.
// CollapseMany: parts are groups. A block several tokens, whose sums a warp each adds up.
#include <algorithm>

#include "kernels/hyper_connection/hyper_connection_kernel.h"
#include "kernels/hyper_connection/hyper_connection_kernel_streams.cuh"
#include "kernels/ptx/launch.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

constexpr int kWarps = kHyperThreads / 32;
constexpr int kMaxStreams = 8;
constexpr int kMaxRows = (2 + kMaxStreams) * kMaxStreams;
// Up to here a row has several blocks.
constexpr int kSplitRowTokens = 64;
// Groups of pieces that a warp asks for at once.
constexpr int kGroupsAtOnce = 2;
// CollapseMany divides the tokens among about so many blocks: those that are resident at once.
constexpr int kManyBlocks = 512;

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ const float* TokenSums(const HyperCollapseKernelArgs& args, int token) {
  return args.sums + static_cast<int64_t>(token) * args.parts * (args.rows + 1);
}

// groups[g][r] <- the sums of the pieces of group g, by eight warps.
__device__ __forceinline__ void SumGroups(const HyperCollapseKernelArgs& args, const float* sums,
                                          float* groups) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int columns = args.rows + 1;
  const int count = (args.parts + kHyperGroupPieces - 1) / kHyperGroupPieces;
  for (int first = warp; first < count; first += kWarps * kGroupsAtOnce) {
    for (int r = lane; r < columns; r += 32) {
      float v[kGroupsAtOnce][kHyperGroupPieces];
#pragma unroll
      for (int g = 0; g < kGroupsAtOnce; ++g) {
#pragma unroll
        for (int i = 0; i < kHyperGroupPieces; ++i) {
          const int part = (first + g * kWarps) * kHyperGroupPieces + i;
          v[g][i] = part < args.parts ? sums[part * columns + r] : 0.0f;
        }
      }
#pragma unroll
      for (int g = 0; g < kGroupsAtOnce; ++g) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kHyperGroupPieces; ++i) sum += v[g][i];
        if (first + g * kWarps < count) groups[(first + g * kWarps) * columns + r] = sum;
      }
    }
  }
}

// Scale and base of each row of fn. Weights: a block reads them before the wait.
struct Affine {
  float2 rows[kMaxRows];

  // By one warp.
  __device__ __forceinline__ void Fill(const HyperCollapseKernelArgs& args) {
    const int count = args.streams.count;
    for (int r = static_cast<int>(threadIdx.x) % 32; r < args.rows; r += 32) {
      rows[r] = make_float2(args.scale[min(r / count, 2)], args.base[r]);
    }
  }
};

// What a token's mixing follows from.
struct TokenMix {
  float mixes[kMaxRows + 1];  // scaled and shifted; in the end the rows of the matrix' softmax
  float pre[kMaxStreams];     // 0 for those that are not there

  // By one warp. `groups`: [count][rows + 1].
  __device__ __forceinline__ void Fill(const HyperCollapseKernelArgs& args, const Affine& affine,
                                       const float* groups, int count) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int columns = args.rows + 1;
    for (int r = lane; r < columns; r += 32) {
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < count; ++i) sum += groups[i * columns + r];
      mixes[r] = sum;
    }
    __syncwarp();
    const float size = static_cast<float>(args.streams.count * args.streams.width);
    const float norm = rsqrtf(mixes[args.rows] / size + args.norm_eps);
    __syncwarp();
    for (int r = lane; r < args.rows; r += 32) {
      mixes[r] = mixes[r] * norm * affine.rows[r].x + affine.rows[r].y;
    }
    __syncwarp();
    if (lane >= kMaxStreams) return;
    pre[lane] = lane < args.streams.count ? Sigmoid(mixes[lane]) + args.hc_eps : 0.0f;
  }

  // mixes of the matrix' row j <- their softmax, plus eps.
  __device__ __forceinline__ void Softmax(int j, int count, float eps) {
    float* row = mixes + (2 + j) * count;
    float top = -INFINITY, sum = 0;
    for (int k = 0; k < count; ++k) top = fmaxf(top, row[k]);
    for (int k = 0; k < count; ++k) sum += row[k] = expf(row[k] - top);
    for (int k = 0; k < count; ++k) row[k] = row[k] / sum + eps;
  }
};

// Made doubly stochastic. Streams that are not there mix with themselves alone.
template <int kStreams>
struct MixingMatrix {
  float c[kStreams][kStreams];

  __device__ __forceinline__ MixingMatrix(const float* rows, int count) {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
#pragma unroll
      for (int k = 0; k < kStreams; ++k) {
        c[j][k] = j < count && k < count ? rows[j * count + k] : (j == k ? 1.0f : 0.0f);
      }
    }
  }

  __device__ __forceinline__ void DivideRows(float eps) {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      float sum = c[j][0] + eps;
#pragma unroll
      for (int k = 1; k < kStreams; ++k) sum += c[j][k];
      const float factor = __fdividef(1.0f, sum);
#pragma unroll
      for (int k = 0; k < kStreams; ++k) c[j][k] *= factor;
    }
  }

  __device__ __forceinline__ void DivideColumns(float eps) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      float sum = c[0][k] + eps;
#pragma unroll
      for (int j = 1; j < kStreams; ++j) sum += c[j][k];
      const float factor = __fdividef(1.0f, sum);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[j][k] *= factor;
    }
  }
};

// Of up to 32 tokens, by one warp: a lane a row, then a lane a token.
template <int kStreams>
__device__ __forceinline__ void StorePostAndComb(const HyperCollapseKernelArgs& args, int first,
                                                 int tokens, TokenMix* mixes) {
  const int lane = static_cast<int>(threadIdx.x) % 32, count = args.streams.count;
  for (int r = lane; r < tokens * count; r += 32) {
    const int t = r / count, j = r - t * count;
    mixes[t].Softmax(j, count, args.hc_eps);
    args.post[(first + t) * args.post_stride + j] = 2.0f * Sigmoid(mixes[t].mixes[count + j]);
  }
  __syncwarp();
  if (lane >= tokens) return;
  MixingMatrix<kStreams> matrix(mixes[lane].mixes + 2 * count, count);
  matrix.DivideColumns(args.hc_eps);
  for (int i = 1; i < args.sinkhorn_iters; ++i) {
    matrix.DivideRows(args.hc_eps);
    matrix.DivideColumns(args.hc_eps);
  }
  float* comb = args.comb + (first + lane) * args.comb_token_stride;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      if (j < count && k < count) comb[j * args.comb_stride + k] = matrix.c[j][k];
    }
  }
}

template <typename Traits, int kStreams>
__device__ __forceinline__ typename Traits::Word Collapsed(
    const typename Traits::Word (&words)[kStreams], const float* pre) {
  Floats<Traits::kWidth> sum = {};
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    const Floats<Traits::kWidth> z = Widened(words[j]);
    const float weight = pre[j];
#pragma unroll
    for (int e = 0; e < Traits::kWidth; ++e) sum.v[e] = fmaf(weight, z.v[e], sum.v[e]);
  }
  return Narrowed<typename Traits::Element>(sum);
}

// Room for kStreams streams.
template <typename Traits, int kStreams>
__global__ void __launch_bounds__(kHyperThreads + 32, kStreams <= 4 ? 4 : 1)
    CollapseFew(const __grid_constant__ HyperCollapseKernelArgs args) {
  using T = typename Traits::Element;
  extern __shared__ float groups[];
  __shared__ Affine affine;
  __shared__ TokenMix mix;
  if (threadIdx.x < 32) affine.Fill(args);
  const int token = static_cast<int>(blockIdx.x);
  const bool collapses = threadIdx.x < kHyperThreads;
  const int width = args.streams.width;
  int i = collapses ? FirstElement<Traits>() : width;
  const T* rows = TokenStreams<Traits>(args.streams, token);
  WaitForPriorGrid();
  StartNextGrid();
  typename Traits::Word words[kStreams];
  if (i < width) LoadWords<Traits>(args.streams, rows, i, words);
  if (collapses) SumGroups(args, TokenSums(args, token), groups);
  __syncthreads();
  if (threadIdx.x < 32) {
    mix.Fill(args, affine, groups, (args.parts + kHyperGroupPieces - 1) / kHyperGroupPieces);
  }
  __syncthreads();
  if (threadIdx.x >= kHyperThreads && blockIdx.y == 0) {
    StorePostAndComb<kStreams>(args, token, 1, &mix);
  }
  T* y = static_cast<T*>(args.y) + token * args.y_stride;
  while (i < width) {
    StoreVec(y + i, Collapsed<Traits>(words, mix.pre));
    i += ElementStep<Traits>();
    if (i < width) LoadWords<Traits>(args.streams, rows, i, words);
  }
}

template <typename Traits, int kStreams>
__global__ void __launch_bounds__(kHyperThreads + 32)
    CollapseMany(const __grid_constant__ HyperCollapseKernelArgs args, int block_tokens) {
  using T = typename Traits::Element;
  using Word = typename Traits::Word;
  __shared__ Affine affine;
  __shared__ TokenMix mixes[kWarps];
  const int first = static_cast<int>(blockIdx.x) * block_tokens;
  const int count = min(block_tokens, args.streams.tokens - first);
  const int width = args.streams.width;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  // A thread has word after word of one token, and then of the next.
  int t = 0;
  int i = FirstElement<Traits>();
  const auto load = [&](Word(&words)[kStreams]) {
    LoadWords<Traits>(args.streams, TokenStreams<Traits>(args.streams, first + t), i, words);
  };
  const bool collapses = warp < kWarps && i < width;
  if (warp == 0) affine.Fill(args);
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();
  Word words[kStreams];
  if (collapses) load(words);
  if (warp < count) mixes[warp].Fill(args, affine, TokenSums(args, first + warp), args.parts);
  __syncthreads();
  if (warp == kWarps) {
    StorePostAndComb<kStreams>(args, first, count, mixes);
    return;
  }
  while (collapses && t < count) {
    T* to = static_cast<T*>(args.y) + (first + t) * args.y_stride + i;
    const float* pre = mixes[t].pre;
    i += ElementStep<Traits>();
    if (i >= width) {
      i = FirstElement<Traits>();
      ++t;
    }
    Word next[kStreams];
    if (t < count) load(next);
    StoreVec(to, Collapsed<Traits>(words, pre));
#pragma unroll
    for (int j = 0; j < kStreams; ++j) words[j] = next[j];
  }
}

template <typename Traits>
cudaError_t LaunchCollapse(const HyperCollapseKernelArgs& args, cudaStream_t stream) {
  const int tokens = args.streams.tokens;
  const dim3 block(args.post == nullptr ? kHyperThreads : kHyperThreads + 32);
  if (args.group_parts == 1) {
    const int block_tokens = std::clamp((tokens + kManyBlocks - 1) / kManyBlocks, 1, kWarps);
    const auto blocks = static_cast<unsigned>((tokens + block_tokens - 1) / block_tokens);
    return Launch(args.streams.count <= 4 ? CollapseMany<Traits, 4> : CollapseMany<Traits, 8>,
                  {.grid = dim3(blocks), .block = block}, stream, args, block_tokens);
  }
  const int groups = (args.parts + kHyperGroupPieces - 1) / kHyperGroupPieces;
  const bool split = tokens <= kSplitRowTokens;
  return Launch(args.streams.count <= 4 ? CollapseFew<Traits, 4> : CollapseFew<Traits, 8>,
                {.grid = dim3(static_cast<unsigned>(tokens),
                              split ? RowBlocks<Traits>(args.streams.width) : 1),
                 .block = block,
                 .shared_bytes = sizeof(float) * static_cast<size_t>(groups * (args.rows + 1))},
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
