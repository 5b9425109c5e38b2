// Few tokens, on Hopper: y' [N, M] = w [N, K] x [M, K]', E4M3, with the weights on the 64-row side
// of the tensor cores and the tokens on the other.
//
// Grid: a cluster for each tile of kOutputs outputs; its blocks share the tile's K in equal parts.
//   warpgroups   64 outputs each
//   last warp    producer: keeps a ring of (w, x, scales of x) stages full; the weights of the
//   first
//                ones are asked for before the step's inputs exist
// At the end the blocks of a cluster lay their sums into shared memory, and each adds its share of
// the tile from all of them, in the order of K. Bound by reading w; the ring leaves half of the SM
// to the next kernel, whose weights then come under this one's end.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
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
  // Stages whose products run at once, as far as registers go.
  static constexpr int kTogether = kSums * kWarpgroupsOfBlock <= 32 ? 2 : 1;
  // Pieces of 16 outputs x 8 tokens of a tile, a float4 a lane.
  static constexpr int kPieces = kConsumers / 32 * (kTokens / 8);

  struct Smem {
    union {
      alignas(1024) uint8_t w[kStages][kOutputs * kDepth];
      float4 sums[kPieces][32];  // when the ring is done with
    };
    alignas(1024) uint8_t x[kStages][kTokens * kDepth];
    alignas(128) float x_scale[kStages][kTokens < 32 ? 32 : kTokens];
    uint64_t full[kStages];
    uint64_t empty[kStages];
  };
  static_assert(sizeof(Smem) <= 227 * 1024 / kBlocksPerSm - 1024);  // 1 KiB a block is the system's
  static constexpr uint32_t kStageBytes =
      (kOutputs + kTokens) * kDepth + (kBlocks ? kTokens * 4 : 0);
};

struct Maps {
  CUtensorMap w, x, x_scale;
};

enum Barrier : int { kConsumers = 1 };

// A block's blocks of 128 of K.
struct Range {
  int begin, end;
};
__device__ __forceinline__ Range RangeOf(int inputs, int splits) {
  const int depth_blocks = (inputs + 127) / 128;
  const int rank = blockIdx.x % splits;
  return {depth_blocks * rank / splits, depth_blocks * (rank + 1) / splits};
}

template <typename T>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Maps& maps, typename T::Smem& smem, Range range,
                                      int output)
      : maps_(maps), smem_(smem), range_(range), output_(output) {}

  // Before the step's inputs exist.
  __device__ __forceinline__ void Start() {
    PrefetchMap(maps_.w);
    PrefetchMap(maps_.x);
    if constexpr (T::kBlocks) PrefetchMap(maps_.x_scale);
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem_.full[i], 1);
      InitBarrier(&smem_.empty[i], T::kConsumers / 32);
    }
    FenceBarrierInit();
    for (int i = 0; i < Ahead(); ++i) LoadWeights(range_.begin + i, i);
  }

  __device__ __forceinline__ void Run() {
    for (int i = 0; i < Ahead(); ++i) LoadInputs(range_.begin + i, i);
    int stage = 0;
    uint32_t parity = 0;
    for (int k = range_.begin + Ahead(); k < range_.end; ++k) {
      Wait(&smem_.empty[stage], parity);
      LoadWeights(k, stage);
      LoadInputs(k, stage);
      if (++stage == T::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
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

  // The whole tile's sums are this block's: stores them.
  __device__ __forceinline__ void StoreOwn() {
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      if (8 * j < args_.tokens) StorePiece(warp_, j, Sums(j));
    }
  }

  // Leaves the sums for the cluster.
  __device__ __forceinline__ void Leave() {
    NamedSync(kConsumers, T::kConsumers);  // nobody reads the ring any more
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      smem_.sums[warp_ * (T::kTokens / 8) + j][lane_] = Sums(j);
    }
  }

  // Adds and stores the block's share of the pieces.
  __device__ __forceinline__ void StoreShare(int splits) {
    const int rank = blockIdx.x % splits;
    for (int piece = rank + splits * warp_; piece < T::kPieces;
         piece += splits * T::kConsumers / 32) {
      const int j = piece % (T::kTokens / 8);
      if (8 * j >= args_.tokens) continue;
      const float4* const from = &smem_.sums[piece][lane_];
      float4 sum = LoadFrom(from, 0);
      for (int r = 1; r < splits; ++r) {
        const float4 v = LoadFrom(from, r);
        sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
      }
      StorePiece(piece / (T::kTokens / 8), j, sum);
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
    int stage[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      stage[i] = stage_;
      Wait(&smem_.full[stage_], parity_);
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
      Promote(stage[i], scale[i], part[i]);
      __syncwarp();
      if (lane_ == 0) Arrive(&smem_.empty[stage[i]]);
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

  // A thread has two tokens of each eight.
  __device__ __forceinline__ void Promote(int stage, float w_scale, const float (&part)[T::kSums]) {
    const float* const scales = smem_.x_scale[stage] + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      float2 scale = {1, 1};
      if constexpr (T::kBlocks) {
        scale = *reinterpret_cast<const float2*>(scales + 8 * j);
        scale.x *= w_scale;
        scale.y *= w_scale;
      }
      total_[4 * j] += part[4 * j] * scale.x;
      total_[4 * j + 1] += part[4 * j + 1] * scale.y;
      total_[4 * j + 2] += part[4 * j + 2] * scale.x;
      total_[4 * j + 3] += part[4 * j + 3] * scale.y;
    }
  }

  // 16 bytes of the block of this rank.
  static __device__ __forceinline__ float4 LoadFrom(const float4* at, int rank) {
    float4 v;
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "r"(SharedAddress(at)), "r"(rank)
        : "memory");
    return v;
  }

  // 16 outputs of 8 tokens. A lane has, of tokens t = 2 (lane % 4) and t + 1, output lane / 4 (x,
  // y) and the one 8 further (z, w).
  __device__ __forceinline__ void StorePiece(int slab, int j, float4 sums) const {
    const int output = output_ + slab * 16;
    float s[4] = {sums.x, sums.y, sums.z, sums.w};
    if constexpr (!T::kBlocks) ScaleSums(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
    if (HasAddends(args_)) AddAddends(output + lane_ / 4, 8 * j + lane_ % 4 * 2, s);
    if (!args_.y_bf16 || args_.y_stride % 2 != 0 || reinterpret_cast<uintptr_t>(args_.y) % 4 != 0) {
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
  const Range range = RangeOf(args.inputs, splits);
  const int output = static_cast<int>(blockIdx.x) / splits * T::kOutputs;
  const bool produces = threadIdx.x == T::kConsumers;
  Producer<T> producer(maps, smem, range, output);
  Consumer<T> consumer(args, smem, output);
  if (produces) {
    producer.Start();
  } else if (threadIdx.x < T::kConsumers) {
    consumer.Start(range);
  }
  __syncthreads();
  WaitForPriorGrid();
  StartNextGrid();
  if (produces) {
    producer.Run();
  } else if (threadIdx.x < T::kConsumers) {
    consumer.Run(range);
  }
  if (splits == 1) {
    if (threadIdx.x < T::kConsumers) consumer.StoreOwn();
    return;
  }
  if (threadIdx.x < T::kConsumers) consumer.Leave();
  __syncwarp();
  ClusterSync();
  if (threadIdx.x < T::kConsumers) consumer.StoreShare(splits);
  __syncwarp();
  ClusterSync();  // a block that left could not be read
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_split

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_SPLIT_CUH_
