// Few tokens, on Hopper: y' [N, M] = w [N, K] x [M, K]', E4M3, with the weights on the 64-row side
// of the tensor cores and the tokens on the other.
//
// The work is a line of units, each 128 outputs x 128 of K, tile by tile; block c of the grid, one
// an SM, takes the c-th of equal parts of the line, so that all read the same amount of weights.
//   warpgroups 0, 1  64 outputs each
//   warp 8           producer: keeps a ring of (w, x, scales of x) stages full; the weights of the
//                    first ones are asked for before the step's inputs exist
//   warp 9           messenger: publishes a part of a tile, so that no consumer waits for a fence.
//                    Of groups (kernels/fp8_grouped_gemm): finds the block's tiles
// Where a tile is cut, the block with its head owns it. The others leave their sums in memory: a
// block has at most one such part, and it is the first thing that it computes. The owner, whose
// last tile it is, adds the parts to its own in the order of K. Bound by reading w; the ring leaves
// half of the SM to the next kernel, whose weights then come under this one's end.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_few_work.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_token_scales.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma_fp8.cuh"

namespace millrace::fp8_few {

template <int kTokensOfTile, int kRing, bool kOfBlocks, typename WorkOfBlocks = Line>
struct Traits {
  using Work = WorkOfBlocks;
  static constexpr int kTokens = kTokensOfTile;
  static constexpr int kStages = kRing;
  static constexpr bool kBlocks = kOfBlocks;  // scales of 128 x 128 blocks

  static constexpr int kDepth = 128;  // of K, a stage
  static constexpr int kOutputs = 128;
  static constexpr int kConsumers = 256;
  static constexpr int kThreads = kConsumers + 64;
  static constexpr int kSums = kTokens / 2;  // a thread
  // Scales of x that a stage loads: boxes begin on 16 bytes, a group's tokens anywhere.
  static constexpr int kScaleBox = kTokens + (Work::kGroups ? 4 : 0);
  static constexpr int kBlocksPerSm = kTokens <= 64 ? 2 : 1;

  struct Smem {
    alignas(1024) uint8_t w[kStages][kOutputs * kDepth];
    alignas(1024) uint8_t x[kStages][kTokens * kDepth];
    alignas(128) float x_scale[kStages][(kScaleBox + 31) / 32 * 32];
    uint64_t full[kStages];
    uint64_t empty[kStages];
    typename Work::Shared work;
  };
  static_assert(sizeof(Smem) <= (kBlocksPerSm == 2 ? 113 : 227) * 1024);
  static constexpr uint32_t kStageBytes =
      (kOutputs + kTokens) * kDepth + (kBlocks ? kScaleBox * 4 : 0);
};

struct Maps {
  CUtensorMap w, x, x_scale;
};

// The row of w that a piece's first output is.
__device__ __forceinline__ int WeightRow(const Fp8GemmKernelArgs& args, const Piece& piece) {
  return piece.group * args.weight_group_rows + piece.output;
}

template <typename T>
__device__ __forceinline__ void Produce(const Fp8GemmKernelArgs& args,
                                        const typename T::Work::Params& work, const Maps& maps,
                                        typename T::Smem& smem) {
  const uint64_t once = EvictFirst();
  const auto load_weights = [&](const Piece& piece, int k, int stage) {
    ArriveExpect(&smem.full[stage], T::kStageBytes);
    const int2 at = {k * T::kDepth, WeightRow(args, piece)};
    if constexpr (T::Work::kGroups) {
      LoadBox2(smem.w[stage], maps.w, &smem.full[stage], at, once);
    } else {
      LoadBox2(smem.w[stage], maps.w, &smem.full[stage], at.x, at.y);
    }
  };
  using Reader = typename T::Work::template Reader<T>;
  int ahead = 0;
  if constexpr (T::Work::kKnownAhead) {
    Reader pieces(args, smem.work);
    for (Piece piece = {}; ahead < T::kStages && pieces.Next(piece);) {
      for (int k = piece.begin; k < piece.end && ahead < T::kStages; ++k) {
        load_weights(piece, k, ahead++);
      }
    }
  } else {
    Piece likely = {};
    const bool guess = T::Work::template Likely<T>(args, work, likely);
    for (int k = 0; guess && k < min(likely.end, T::kStages); ++k) {
      PrefetchBox2(maps.w, k * T::kDepth, WeightRow(args, likely));
    }
  }
  WaitForPriorGrid();
  StartNextGrid();
  Reader pieces(args, smem.work);
  int stage = 0;
  uint32_t parity = 1;
  for (Piece piece = {}; pieces.Next(piece);) {
    for (int k = piece.begin; k < piece.end; ++k) {
      Wait(&smem.empty[stage], parity);
      if (--ahead < 0) load_weights(piece, k, stage);
      LoadBox2(smem.x[stage], maps.x, &smem.full[stage], k * T::kDepth, piece.token);
      if constexpr (T::kBlocks) {
        LoadBox2(smem.x_scale[stage], maps.x_scale, &smem.full[stage], piece.token & ~3, k);
      }
      if (++stage == T::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// 64 outputs of every tile that the block has a part of.
template <typename T>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Fp8GemmKernelArgs& args,
                                      const typename T::Work::Params& work, typename T::Smem& smem)
      : args_(args), work_(work), smem_(smem) {}

  __device__ __forceinline__ void Run() {
    typename T::Work::template Reader<T> pieces(args_, smem_.work);
    Piece next = {};
    bool more = pieces.Next(next);
    float w_scale = more ? WeightScale(next, next.begin) : 0;
    int stage = 0;
    uint32_t parity = 0;
    float total[T::kSums] = {};
    while (more) {
      const Piece piece = next;
      more = pieces.Next(next);
      for (int k = piece.begin; k < piece.end; ++k) {
        const float scale = w_scale;
        w_scale = k + 1 < piece.end ? WeightScale(piece, k + 1) : WeightScale(next, next.begin);
        Wait(&smem_.full[stage], parity);
        float part[T::kSums];
        Multiply(stage, part);
        TokenScales<T::kTokens, T::kBlocks, !T::Work::kGroups> x_scale;
        x_scale.Load(smem_.x_scale[stage] + (piece.token & 3));
        x_scale.Add(part, scale, total);
        __syncwarp();
        if (lane_ == x_scale.Leader()) Arrive(&smem_.empty[stage]);
        if (++stage == T::kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      if (Complete(piece, total)) Store(piece, total);
#pragma unroll
      for (int i = 0; i < T::kSums; ++i) total[i] = 0;
    }
  }

 private:
  __device__ __forceinline__ float WeightScale(const Piece& piece, int k) const {
    if constexpr (!T::kBlocks) return 1;
    return __ldg(args_.weight_scale + piece.group * args_.weight_scale_group_stride +
                 piece.output / 128 * args_.weight_scale_stride + k);
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
    WgmmaWait<0>();
    WgmmaHold(part);
  }

  // Whether `total` now has the tile's whole sums. Otherwise they are a part, left in memory for
  // the owner.
  __device__ __forceinline__ bool Complete(const Piece& piece, float (&total)[T::kSums]) const {
    if constexpr (!T::Work::kCuts) {
      return true;
    } else {
      if (piece.begin > 0) {
        float* const part = Part(blockIdx.x);
#pragma unroll
        for (int i = 0; i < T::kSums; i += 4) {
          __stcg(reinterpret_cast<float4*>(part + i * 128),
                 make_float4(total[i], total[i + 1], total[i + 2], total[i + 3]));
        }
        NamedArrive(kPart + wg_, 128 + 32);
        return false;
      }
      const auto line = T::Work::template Of<T>(args_);
      if (piece.end < line.depth_blocks) {
        const int tile = piece.output / T::kOutputs;
        Collect(line.Owner((tile + 1) * line.depth_blocks - 1), total);
      }
      return true;
    }
  }

  // Adds the parts of the blocks after this one, up to `last`.
  __device__ __forceinline__ void Collect(int last, float (&total)[T::kSums]) const {
    for (int block = blockIdx.x + 1 + tid_; block <= last; block += 128) {
      int32_t* const ready = work_.ready + block * 2 + wg_;
      while (LoadAcquire(ready) == 0) {
      }
      *ready = 0;
    }
    NamedSync(kWarpgroup + wg_, 128);
#pragma unroll 4
    for (int block = blockIdx.x + 1; block <= last; ++block) {
      const float* const part = Part(block);
#pragma unroll
      for (int i = 0; i < T::kSums; i += 4) {
        const float4 v = __ldcg(reinterpret_cast<const float4*>(part + i * 128));
        total[i] += v.x;
        total[i + 1] += v.y;
        total[i + 2] += v.z;
        total[i + 3] += v.w;
      }
    }
  }

  // A block's part, where this thread's sums begin.
  __device__ __forceinline__ float* Part(int block) const {
    return work_.parts + (int64_t{block} * 2 + wg_) * 64 * T::kTokens + tid_ * 4;
  }

  __device__ __forceinline__ void Store(const Piece& piece, float (&total)[T::kSums]) const {
    // Opaque, or the addresses of every token would be kept in registers through the whole loop.
    Piece warp = piece;
    warp.output += wg_ * 64 + warp_ * 16;
    int lane = lane_;
    asm volatile("" : "+r"(warp.output), "+r"(lane));
    if constexpr (!T::kBlocks) ScaleSums(warp, lane, total);
    if (HasAddends(args_)) AddAddends(warp, lane, total);
    if (args_.y_bf16 && args_.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args_.y) % 4 == 0) {
      StorePairs(warp, lane, total);
    } else {
      StoreSingly(warp, lane, total);
    }
  }

  // Bias and residual. Who reads a residual waits for it before anyone of the warp stores, so that
  // y may lie in its place.
  __device__ __forceinline__ void AddAddends(const Piece& warp, int lane,
                                             float (&total)[T::kSums]) const {
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) {
      const int token = warp.token + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int at = warp.output + lane / 4 + i / 2 % 2 * 8;
      if (token >= warp.token_end || at >= args_.outputs) continue;
      total[i] = WithAddends(args_, token, at, total[i]);
    }
    __syncwarp();
  }

  // Turned over in the warp, so that a thread has neighbouring outputs of one token.
  __device__ __forceinline__ void StorePairs(const Piece& warp, int lane,
                                             const float (&total)[T::kSums]) const {
    const int at = warp.output + lane % 4 * 2;
    const int token = warp.token + lane / 4;
    auto* y = static_cast<__nv_bfloat16*>(args_.y) + token * args_.y_stride + at;
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j, y += 8 * args_.y_stride) {
      const bool in = token + 8 * j < warp.token_end;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t pair =
            TransposeMatrix(PackBf16(total[4 * j + 2 * h], total[4 * j + 2 * h + 1]));
        const int left = args_.outputs - (at + 8 * h);
        if (in && left > 1) {
          *reinterpret_cast<uint32_t*>(y + 8 * h) = pair;
        } else if (in && left == 1) {
          *reinterpret_cast<uint16_t*>(y + 8 * h) = static_cast<uint16_t>(pair);
        }
      }
    }
  }

  __device__ __forceinline__ void StoreSingly(const Piece& warp, int lane,
                                              const float (&total)[T::kSums]) const {
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) {
      const int token = warp.token + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int at = warp.output + lane / 4 + i / 2 % 2 * 8;
      if (token >= warp.token_end || at >= args_.outputs) continue;
      StoreElement(args_, token, at, total[i]);
    }
  }

  // Scales of tokens and outputs.
  __device__ __forceinline__ void ScaleSums(const Piece& warp, int lane,
                                            float (&total)[T::kSums]) const {
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t at = min(warp.output + lane / 4 + 8 * h, args_.outputs - 1);
      weight[h] = LoadInPlace(args_.weight_scale + at * args_.weight_scale_stride);
    }
#pragma unroll
    for (int i = 0; i < T::kSums / 2; ++i) {
      const int64_t token = min(warp.token + i / 2 * 8 + lane % 4 * 2 + i % 2, args_.tokens - 1);
      const float scale = LoadInPlace(args_.x_scale + token * args_.x_scale_stride);
      total[i / 2 * 4 + i % 2] *= scale * weight[0];
      total[i / 2 * 4 + i % 2 + 2] *= scale * weight[1];
    }
  }

  const Fp8GemmKernelArgs& args_;
  const typename T::Work::Params& work_;
  typename T::Smem& smem_;
  const int wg_ = static_cast<int>(threadIdx.x) / 128;
  const int tid_ = static_cast<int>(threadIdx.x) % 128;
  const int warp_ = tid_ / 32;
  const int lane_ = tid_ % 32;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksPerSm)
    Fp8GemmFew(const __grid_constant__ Fp8GemmKernelArgs args,
               const __grid_constant__ typename T::Work::Params work,
               const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t raw[];
  typename T::Smem& smem = *reinterpret_cast<typename T::Smem*>(raw);
  if (threadIdx.x == T::kConsumers) {
    PrefetchMap(maps.w);
    PrefetchMap(maps.x);
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem.full[i], 1);
      InitBarrier(&smem.empty[i], T::kConsumers / 32);
    }
    T::Work::template Init<T>(smem.work);
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x == T::kConsumers) {
    Produce<T>(args, work, maps, smem);
  } else {
    WaitForPriorGrid();
    StartNextGrid();
    if (threadIdx.x < T::kConsumers) Consumer<T>(args, work, smem).Run();
    if (threadIdx.x >= T::kConsumers + 32) T::Work::template Aside<T>(args, work, smem.work);
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_few

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_
