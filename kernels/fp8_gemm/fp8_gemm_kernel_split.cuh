// Few tokens, on Hopper: y' [N, M] = w [N, K] x [M, K]', E4M3, with the weights on the 64-row side
// of the tensor cores and the tokens on the other.
//
// Grid: a cluster for each tile of kOutputs outputs; its blocks share the tile's K in equal parts.
//   warpgroups   64 outputs each
//   last warp    producer: keeps a ring of (w, x, scales of x) stages full; the weights of the
//                first ones are asked for before the step's inputs exist
// At the end each block of a cluster sends the others their shares of its sums, into what they no
// longer need of their rings, and adds up its own share in the order of K. Bound by reading w; the
// ring leaves half of the SM to the next kernel, whose weights then come under this one's end. No
// thread fences for that: a fence, a barrier of the cluster that releases included, would wait for
// the next kernel's weights (few_tokens.md).
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_token_scales.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma_fp8.cuh"

namespace millrace::fp8_split {

template <int kTokensOfTile, int kWarpgroupsOfBlock, bool kOfBlocks>
struct Traits {
  static constexpr int kTokens = kTokensOfTile;
  static constexpr bool kBlocks = kOfBlocks;  // scales of 128 x 128 blocks

  static constexpr int kDepth = 128;  // of K, a stage
  static constexpr int kOutputs = 64 * kWarpgroupsOfBlock;
  static constexpr int kConsumers = 128 * kWarpgroupsOfBlock;
  static constexpr int kThreads = kConsumers + 32;
  static constexpr int kSums = kTokens / 2;  // a thread
  // Half of the SM, so that the next kernel fits beside it.
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kStages = 108 * 1024 / ((kOutputs + kTokens) * kDepth);
  // Stages of a block's weights not yet asked for when the next kernel may start. With more of them
  // its first weights would be in the way of these, with fewer they come late (few_tokens.md).
  static constexpr int kNextStartsAt = kWarpgroupsOfBlock == 1 ? 3 : 8;
  // Stages whose products run at once, as far as registers go.
  static constexpr int kTogether = kSums * kWarpgroupsOfBlock <= 32 ? 2 : 1;
  // Pieces of 16 outputs x 8 tokens of a tile, a float4 a lane, and how many a stage of w holds.
  static constexpr int kPieceBytes = 512;
  static constexpr int kPieces = kConsumers / 32 * (kTokens / 8);
  static constexpr int kPiecesOfStage = kOutputs * kDepth / kPieceBytes;
  // A block's share of the pieces from all blocks lies in the ring beside the last stage.
  static_assert(kPieces + kFp8GemmMostSplits <= (kStages - 1) * kPiecesOfStage);

  struct Smem {
    alignas(1024) uint8_t w[kStages][kOutputs * kDepth];
    alignas(1024) uint8_t x[kStages][kTokens * kDepth];
    alignas(128) float x_scale[kStages][kTokens < 32 ? 32 : kTokens];
    uint64_t full[kStages];
    uint64_t empty[kStages];
    uint64_t ready;  // every block of the cluster takes sums
    uint64_t sent;   // the others' sums of this block's share are there
  };
  static_assert(sizeof(Smem) <= 227 * 1024 / kBlocksPerSm - 1024);  // 1 KiB a block is the system's
  static constexpr uint32_t kStageBytes =
      (kOutputs + kTokens) * kDepth + (kBlocks ? kTokens * 4 : 0);
};

struct Maps {
  CUtensorMap w, x, x_scale;
};

// The part of a tile's K that is a block's: blocks of 128.
struct Range {
  int begin, end;
};

__device__ __forceinline__ int Log2(int power) { return 31 - __clz(power); }

// How a cluster shares a tile: a power of two of blocks, by whose logarithm it is divided.
struct Split {
  __device__ __forceinline__ explicit Split(int count)
      : count(count), log2(Log2(count)), rank(static_cast<int>(blockIdx.x) & (count - 1)) {}
  __device__ __forceinline__ Range RangeOf(int inputs, int block) const {
    const int depth_blocks = (inputs + 127) / 128;
    return {depth_blocks * block >> log2, depth_blocks * (block + 1) >> log2};
  }
  const int count;
  const int log2;
  const int rank;  // of this block
};

// Whose share the pieces of a tile are, dealt out in turn, and where a block keeps its share.
template <typename T>
struct Shares {
  __device__ __forceinline__ Shares(const Fp8GemmKernelArgs& args, const Split& split)
      : split(split), inputs(args.inputs), columns((args.tokens + 7) / 8) {}

  __device__ __forceinline__ int Owned() const {
    return (T::kConsumers / 32 * columns - split.rank + split.count - 1) >> split.log2;
  }
  // A lane's float4 of a piece from the block `from`, in the block `owner`.
  __device__ __forceinline__ float4* At(typename T::Smem& smem, int owner, int from,
                                        int piece) const {
    const int most = (T::kConsumers / 32 * columns + split.count - 1) >> split.log2;
    const int i = from * most + (piece >> split.log2);
    // The first stage after the last one that the owner uses.
    const Range range = split.RangeOf(inputs, owner);
    const int stage = ((range.end - range.begin) % T::kStages + i / T::kPiecesOfStage) % T::kStages;
    return reinterpret_cast<float4*>(smem.w[stage] + i % T::kPiecesOfStage * T::kPieceBytes) +
           threadIdx.x % 32;
  }

  const Split& split;
  const int inputs;
  const int columns;  // pieces of 16 outputs
};

template <typename T>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Maps& maps, typename T::Smem& smem, Range range,
                                      int output)
      : maps_(maps), smem_(smem), range_(range), output_(output) {}

  // Before the step's inputs exist.
  __device__ __forceinline__ void Start(const Shares<T>& shares) {
    PrefetchMap(maps_.w);
    PrefetchMap(maps_.x);
    if constexpr (T::kBlocks) PrefetchMap(maps_.x_scale);
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem_.full[i], 1);
      InitBarrier(&smem_.empty[i], T::kConsumers / 32);
    }
    InitBarrier(&smem_.ready, shares.split.count);
    InitBarrier(&smem_.sent, 1);
    FenceBarrierInit();
    ArriveExpect(&smem_.sent, (shares.split.count - 1) * shares.Owned() * T::kPieceBytes);
    for (int i = 0; i < Ahead(); ++i) LoadWeights(range_.begin + i, i);
  }

  // Lets the next kernel start on its way.
  __device__ __forceinline__ void Run() {
    for (int i = 0; i < Ahead(); ++i) LoadInputs(range_.begin + i, i);
    int stage = 0;
    uint32_t parity = 0;
    const int start = max(range_.begin + Ahead(), range_.end - T::kNextStartsAt);
    if (start == range_.end) StartNextGrid();
    for (int k = range_.begin + Ahead(); k < range_.end; ++k) {
      if (k == start) StartNextGrid();
      Wait(&smem_.empty[stage], parity);
      LoadWeights(k, stage);
      LoadInputs(k, stage);
      if (++stage == T::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }

  // When nobody reads any but the last stage any more, tells the cluster.
  __device__ __forceinline__ void Open(int splits) {
    const int before_last = range_.end - range_.begin - 2;
    if (before_last >= 0)
      Wait(&smem_.empty[before_last % T::kStages], before_last / T::kStages & 1);
    for (int r = 0; r < splits; ++r) ArriveRemote(&smem_.ready, r);
  }

 private:
  __device__ __forceinline__ int Ahead() const {
    return min(range_.end - range_.begin, T::kStages);
  }
  __device__ __forceinline__ void LoadWeights(int k, int stage) const {
    ArriveExpect(&smem_.full[stage], T::kStageBytes);
    LoadBox2(smem_.w[stage], maps_.w, &smem_.full[stage], k * T::kDepth, output_);
  }
  __device__ __forceinline__ void LoadInputs(int k, int stage) const {
    LoadBox2(smem_.x[stage], maps_.x, &smem_.full[stage], k * T::kDepth, 0);
    if constexpr (T::kBlocks) {
      LoadBox2(smem_.x_scale[stage], maps_.x_scale, &smem_.full[stage], 0, k);
    }
  }

  const Maps& maps_;
  typename T::Smem& smem_;
  const Range range_;
  const int output_;
};

// 64 outputs of the tile.
template <typename T>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Fp8GemmKernelArgs& args, typename T::Smem& smem,
                                      int output)
      : args_(args), smem_(smem), output_(output) {}

  // Before the step's inputs exist.
  __device__ __forceinline__ void Start(Range range) {
    for (int i = 0; i < T::kTogether; ++i)
      w_scale_[i] = WeightScale(min(range.begin + i, range.end - 1));
  }

  __device__ __forceinline__ void Run(Range range) {
    int k = range.begin;
    for (; k + T::kTogether <= range.end; k += T::kTogether) Step<T::kTogether>(k, range.end);
    if (k < range.end) Step<1>(k, range.end);
  }

  // The whole tile's sums are this block's: stores them. What nearly every call stores has a way of
  // its own, short enough that fetching instructions does not hold it up.
  __device__ __forceinline__ void StoreOwn() {
    if (StoresPairs() && !HasAddends(args_) && output_ + T::kOutputs <= args_.outputs) {
      return StorePairs();
    }
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      if (8 * j < args_.tokens) StorePiece(j, Sums(j));
    }
  }

  // Sends the others their shares.
  __device__ __forceinline__ void Send(const Shares<T>& shares) {
    Wait(&smem_.ready, 0);
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      if (j >= shares.columns) continue;
      const int piece = warp_ * shares.columns + j;
      const int owner = piece & (shares.split.count - 1);
      float4* const to = shares.At(smem_, owner, shares.split.rank, piece);
      if (owner == shares.split.rank) {
        *to = Sums(j);
      } else {
        SendRemote(to, Sums(j), &smem_.sent, owner);
      }
    }
  }

  // Adds and stores the block's share, each warp what is of its own outputs.
  __device__ __forceinline__ void StoreShare(const Shares<T>& shares) {
    Wait(&smem_.sent, 0);
    const int first = warp_ * shares.columns;
#pragma unroll 1
    for (int j = (shares.split.rank - first) & (shares.split.count - 1); j < shares.columns;
         j += shares.split.count) {
      float4 sum = {};
      for (int r = 0; r < shares.split.count; ++r) {
        const float4 v = *shares.At(smem_, shares.split.rank, r, first + j);
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
      StorePiece(j, sum);
    }
  }

 private:
  // kCount stages: the sums of one are added while the products of the next run.
  template <int kCount>
  __device__ __forceinline__ void Step(int k, int end) {
    float scale[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scale[i] = w_scale_[i];
      w_scale_[i] = WeightScale(min(k + kCount + i, end - 1));
    }
    float part[kCount][T::kSums];
    TokenScales<T::kTokens, T::kBlocks, true> x_scale[kCount];
    int stage[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      stage[i] = stage_;
      Wait(&smem_.full[stage_], parity_);
      x_scale[i].Load(smem_.x_scale[stage_]);
      Multiply(stage_, part[i]);
      if (++stage_ == T::kStages) {
        stage_ = 0;
        parity_ ^= 1;
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i + 1 < kCount) {
        WgmmaWait<1>();
      } else {
        WgmmaWait<0>();
      }
      WgmmaHold(part[i]);
      x_scale[i].Add(part[i], scale[i], total_);
      __syncwarp();
      if (lane_ == x_scale[i].Leader()) Arrive(&smem_.empty[stage[i]]);
      if (i + 1 < kCount) WgmmaFence();
    }
  }

  __device__ __forceinline__ float WeightScale(int k) const {
    if constexpr (!T::kBlocks) return 1;
    return __ldg(args_.weight_scale + output_ / 128 * args_.weight_scale_stride + k);
  }

  __device__ __forceinline__ float4 Sums(int j) const {
    return {total_[4 * j], total_[4 * j + 1], total_[4 * j + 2], total_[4 * j + 3]};
  }

  __device__ __forceinline__ void Multiply(int stage, float (&part)[T::kSums]) const {
    const uint64_t w = WgmmaMatrix128(smem_.w[stage] + wg_ * 64 * T::kDepth, 1024, 0);
    const uint64_t x = WgmmaMatrix128(smem_.x[stage], 1024, 0);
    WgmmaFence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      WgmmaE4M3<T::kTokens>::FromShared(part, WgmmaAdvance(w, 32 * i), WgmmaAdvance(x, 32 * i),
                                        i > 0);
    }
    WgmmaCommit();
  }

  // Whether y is stored in pairs of bf16.
  __device__ __forceinline__ bool StoresPairs() const {
    return args_.y_bf16 && args_.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args_.y) % 4 == 0;
  }

  // All pieces of a warp whose outputs are all of y. As StorePiece().
  __device__ __forceinline__ void StorePairs() const {
    const int output = output_ + warp_ * 16;
    auto* y =
        static_cast<__nv_bfloat16*>(args_.y) + lane_ / 4 * args_.y_stride + output + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      float s[4] = {total_[4 * j], total_[4 * j + 1], total_[4 * j + 2], total_[4 * j + 3]};
      if constexpr (!T::kBlocks) ScaleSums(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
      const uint32_t low = TransposeMatrix(PackBf16(s[0], s[1]));
      const uint32_t high = TransposeMatrix(PackBf16(s[2], s[3]));
      if (8 * j + lane_ / 4 < args_.tokens) {
        *reinterpret_cast<uint32_t*>(y) = low;
        *reinterpret_cast<uint32_t*>(y + 8) = high;
      }
      y += 8 * args_.y_stride;
    }
  }

  // The warp's 16 outputs of 8 tokens. A lane has, of tokens t = 2 (lane % 4) and t + 1, output
  // lane / 4 (x, y) and the one 8 further (z, w).
  __device__ __forceinline__ void StorePiece(int j, float4 sums) const {
    const int output = output_ + warp_ * 16;
    float s[4] = {sums.x, sums.y, sums.z, sums.w};
    if constexpr (!T::kBlocks) ScaleSums(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
    if (HasAddends(args_)) AddAddends(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
    if (!StoresPairs()) {
      return StoreSingly(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
    }
    // Turned over in the warp, so that a thread has neighbouring outputs of one token.
    const int at = output + lane_ % 4 * 2;
    const int token = 8 * j + lane_ / 4;
    auto* const y = static_cast<__nv_bfloat16*>(args_.y) + token * args_.y_stride + at;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t pair = TransposeMatrix(PackBf16(s[2 * h], s[2 * h + 1]));
      const int left = args_.outputs - (at + 8 * h);
      if (token < args_.tokens && left > 1) {
        *reinterpret_cast<uint32_t*>(y + 8 * h) = pair;
      } else if (token < args_.tokens && left == 1) {
        *reinterpret_cast<uint16_t*>(y + 8 * h) = static_cast<uint16_t>(pair);
      }
    }
  }

  // Bias and residual. The whole piece's residual is read before any of it is stored, so that y may
  // lie in its place.
  __device__ __forceinline__ void AddAddends(int output, int token, float (&s)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = token + i % 2, o = output + i / 2 * 8;
      if (t < args_.tokens && o < args_.outputs) s[i] = WithAddends(args_, t, o, s[i]);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void StoreSingly(int output, int token, const float (&s)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = token + i % 2, o = output + i / 2 * 8;
      if (t >= args_.tokens || o >= args_.outputs) continue;
      if (args_.y_bf16) {
        static_cast<__nv_bfloat16*>(args_.y)[t * args_.y_stride + o] = __float2bfloat16(s[i]);
      } else {
        static_cast<float*>(args_.y)[t * args_.y_stride + o] = s[i];
      }
    }
  }

  // Scales of tokens and outputs.
  __device__ __forceinline__ void ScaleSums(int output, int token, float (&s)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t t = min(token + i % 2, args_.tokens - 1);
      const int64_t o = min(output + i / 2 * 8, args_.outputs - 1);
      s[i] *= LoadInPlace(args_.x_scale + t * args_.x_scale_stride) *
              LoadInPlace(args_.weight_scale + o * args_.weight_scale_stride);
    }
  }

  const Fp8GemmKernelArgs& args_;
  typename T::Smem& smem_;
  const int output_;
  const int wg_ = static_cast<int>(threadIdx.x) / 128;
  const int warp_ = static_cast<int>(threadIdx.x) / 32;
  const int lane_ = static_cast<int>(threadIdx.x) % 32;
  int stage_ = 0;
  uint32_t parity_ = 0;
  float w_scale_[T::kTogether];
  float total_[T::kSums] = {};
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksPerSm)
    Fp8GemmSplitK(const __grid_constant__ Fp8GemmKernelArgs args, const int splits,
                  const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t raw[];
  typename T::Smem& smem = *reinterpret_cast<typename T::Smem*>(raw);
  const Split split(splits);
  const Shares<T> shares(args, split);
  const Range range = split.RangeOf(args.inputs, split.rank);
  const int output = (static_cast<int>(blockIdx.x) >> split.log2) * T::kOutputs;
  const bool produces = threadIdx.x == T::kConsumers;
  Producer<T> producer(maps, smem, range, output);
  Consumer<T> consumer(args, smem, output);
  if (produces) {
    producer.Start(shares);
  } else if (threadIdx.x < T::kConsumers) {
    consumer.Start(range);
  }
  __syncthreads();
  if (splits > 1) ClusterMeet();  // the barriers that others arrive at exist
  WaitForPriorGrid();
  if (produces) {
    producer.Run();
    if (splits > 1) producer.Open(splits);
  }
  if (threadIdx.x >= T::kConsumers) return;
  consumer.Run(range);
  if (splits == 1) return consumer.StoreOwn();
  // Nobody reaches into a block that has ended: it waits for all that others do to it.
  consumer.Send(shares);
  consumer.StoreShare(shares);
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_split

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_
