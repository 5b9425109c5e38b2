// Few tokens, on Hopper: y' [N, M] = w [N, K] x [M, K]', E4M3, with the weights on the 64-row side
// of the tensor cores and the tokens on the other.
//
// The work is a line of units, each 128 outputs x 128 of K, tile by tile; block c of the grid, one
// an SM, takes the c-th of equal parts of the line, so that all read the same amount of weights.
//   warpgroups 0, 1  64 outputs each
//   warp 8           producer: keeps a ring of (w, x, scales of x) stages full; the weights of the
//                    first ones are asked for before the step's inputs exist
//   warp 9           messenger: publishes a part of a tile, so that no consumer waits for a fence
// Where a tile is cut, the block with its head owns it. The others leave their sums in memory: a
// block has at most one such part, and it is the first thing that it computes. The owner, whose
// last tile it is, adds the parts to its own in the order of K. Bound by reading w; the ring leaves
// half of the SM to the next kernel, whose weights then come under this one's end.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma_fp8.cuh"

namespace millrace::fp8_few {

template <int kTokensOfTile, int kRing, bool kOfBlocks>
struct Traits {
  static constexpr int kTokens = kTokensOfTile;
  static constexpr int kStages = kRing;
  static constexpr bool kBlocks = kOfBlocks;  // scales of 128 x 128 blocks

  static constexpr int kDepth = 128;  // of K, a stage
  static constexpr int kOutputs = 128;
  static constexpr int kConsumers = 256;
  static constexpr int kThreads = kConsumers + 64;
  static constexpr int kSums = kTokens / 2;  // a thread
  static constexpr int kBlocksPerSm = kTokens <= 64 ? 2 : 1;

  struct Smem {
    alignas(1024) uint8_t w[kStages][kOutputs * kDepth];
    alignas(1024) uint8_t x[kStages][kTokens * kDepth];
    alignas(128) float x_scale[kStages][kTokens < 32 ? 32 : kTokens];
    uint64_t full[kStages];
    uint64_t empty[kStages];
  };
  static_assert(sizeof(Smem) <= (kBlocksPerSm == 2 ? 113 : 227) * 1024);
  static constexpr uint32_t kStageBytes =
      (kOutputs + kTokens) * kDepth + (kBlocks ? kTokens * 4 : 0);
};

struct Maps {
  CUtensorMap w, x, x_scale;
};

enum Barrier : int { kWarpgroup = 1, kPart = 3 };  // and the next, one a warpgroup

__device__ __forceinline__ int32_t LoadAcquire(const int32_t* from) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void StoreRelease(int32_t* to, int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// The line of units, and who takes what.
struct Line {
  int depth_blocks;
  int64_t units;
  int blocks;

  template <typename T>
  __device__ __forceinline__ static Line Of(const Fp8GemmKernelArgs& args) {
    const int depth_blocks = (args.inputs + T::kDepth - 1) / T::kDepth;
    const int tiles = (args.outputs + T::kOutputs - 1) / T::kOutputs;
    return {depth_blocks, int64_t{tiles} * depth_blocks, static_cast<int>(gridDim.x)};
  }
  __device__ __forceinline__ int Begin(int block) const {
    return static_cast<int>(units * block / blocks);
  }
  // The block that has this unit.
  __device__ __forceinline__ int Owner(int unit) const {
    int block = static_cast<int>((int64_t{unit} + 1) * blocks / units);
    block = min(block, blocks - 1);
    while (Begin(block) > unit) --block;
    while (Begin(block + 1) <= unit) ++block;
    return block;
  }
};

template <typename T>
__device__ __forceinline__ void Produce(const Line& line, const Maps& maps,
                                        typename T::Smem& smem) {
  const int begin = line.Begin(blockIdx.x);
  const int end = line.Begin(blockIdx.x + 1);
  const auto load_weights = [&](int unit, int stage) {
    ArriveExpect(&smem.full[stage], T::kStageBytes);
    LoadBox2(smem.w[stage], maps.w, &smem.full[stage], unit % line.depth_blocks * T::kDepth,
             unit / line.depth_blocks * T::kOutputs);
  };
  const auto load_inputs = [&](int unit, int stage) {
    const int k = unit % line.depth_blocks;
    LoadBox2(smem.x[stage], maps.x, &smem.full[stage], k * T::kDepth, 0);
    if constexpr (T::kBlocks) {
      LoadBox2(smem.x_scale[stage], maps.x_scale, &smem.full[stage], 0, k);
    }
  };
  const int ahead = min(end - begin, T::kStages);
  for (int i = 0; i < ahead; ++i) load_weights(begin + i, i);
  WaitForPriorGrid();
  StartNextGrid();
  for (int i = 0; i < ahead; ++i) load_inputs(begin + i, i);
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = begin + ahead; unit < end; ++unit) {
    Wait(&smem.empty[stage], parity);
    load_weights(unit, stage);
    load_inputs(unit, stage);
    if (++stage == T::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

// If the block begins inside a tile: says that its part of it lies in memory.
__device__ __forceinline__ void Publish(const Line& line, const Fp8GemmSplit& split) {
  if (line.Begin(blockIdx.x) % line.depth_blocks == 0) return;
  for (int wg = 0; wg < 2; ++wg) {
    NamedSync(kPart + wg, 128 + 32);
    if (threadIdx.x % 32 == 0) StoreRelease(split.ready + blockIdx.x * 2 + wg, 1);
  }
}

// 64 outputs of every tile that the block has a part of.
template <typename T>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split,
                                      const Line& line, typename T::Smem& smem)
      : args_(args), split_(split), line_(line), smem_(smem) {}

  __device__ __forceinline__ void Run() {
    const int begin = line_.Begin(blockIdx.x);
    const int end = line_.Begin(blockIdx.x + 1);
    int stage = 0;
    uint32_t parity = 0;
    float total[T::kSums] = {};
    float w_scale = WeightScale(begin);
    for (int unit = begin; unit < end; ++unit) {
      const float scale = w_scale;
      if (unit + 1 < end) w_scale = WeightScale(unit + 1);
      Wait(&smem_.full[stage], parity);
      float part[T::kSums];
      Multiply(stage, part);
      Promote(stage, scale, part, total);
      __syncwarp();
      if (lane_ == 0) Arrive(&smem_.empty[stage]);
      if (++stage == T::kStages) {
        stage = 0;
        parity ^= 1;
      }
      if (unit + 1 < end && (unit + 1) % line_.depth_blocks != 0) continue;
      if (Complete(unit, begin, total)) Store(unit / line_.depth_blocks, total);
#pragma unroll
      for (int i = 0; i < T::kSums; ++i) total[i] = 0;
    }
  }

 private:
  __device__ __forceinline__ float WeightScale(int unit) const {
    if constexpr (!T::kBlocks) return 1;
    return __ldg(args_.weight_scale + unit / line_.depth_blocks * args_.weight_scale_stride +
                 unit % line_.depth_blocks);
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

  // A thread has two tokens of each eight.
  __device__ __forceinline__ void Promote(int stage, float w_scale, const float (&part)[T::kSums],
                                          float (&total)[T::kSums]) const {
    const float* const scales = smem_.x_scale[stage] + lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j) {
      float2 scale = {1, 1};
      if constexpr (T::kBlocks) {
        scale = *reinterpret_cast<const float2*>(scales + 8 * j);
        scale.x *= w_scale;
        scale.y *= w_scale;
      }
      total[4 * j] += part[4 * j] * scale.x;
      total[4 * j + 1] += part[4 * j + 1] * scale.y;
      total[4 * j + 2] += part[4 * j + 2] * scale.x;
      total[4 * j + 3] += part[4 * j + 3] * scale.y;
    }
  }

  // After the block's last unit of a tile: whether `total` now has the tile's whole sums. Otherwise
  // they are a part, left in memory for the owner.
  __device__ __forceinline__ bool Complete(int unit, int begin, float (&total)[T::kSums]) const {
    const int tile_begin = unit / line_.depth_blocks * line_.depth_blocks;
    const int tile_end = tile_begin + line_.depth_blocks;
    if (begin > tile_begin) {
      float* const part = Part(blockIdx.x);
#pragma unroll
      for (int i = 0; i < T::kSums; i += 4) {
        __stcg(reinterpret_cast<float4*>(part + i * 128),
               make_float4(total[i], total[i + 1], total[i + 2], total[i + 3]));
      }
      NamedArrive(kPart + wg_, 128 + 32);
      return false;
    }
    if (unit + 1 < tile_end) Collect(line_.Owner(tile_end - 1), total);
    return true;
  }

  // Adds the parts of the blocks after this one, up to `last`.
  __device__ __forceinline__ void Collect(int last, float (&total)[T::kSums]) const {
    for (int block = blockIdx.x + 1 + tid_; block <= last; block += 128) {
      int32_t* const ready = split_.ready + block * 2 + wg_;
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
    return split_.parts + (int64_t{block} * 2 + wg_) * 64 * T::kTokens + tid_ * 4;
  }

  __device__ __forceinline__ void Store(int tile, float (&total)[T::kSums]) const {
    // Opaque, or the addresses of every token would be kept in registers through the whole loop.
    int output = tile * T::kOutputs + wg_ * 64 + warp_ * 16;
    int lane = lane_;
    asm volatile("" : "+r"(output), "+r"(lane));
    if constexpr (!T::kBlocks) ScaleSums(output, lane, total);
    if (args_.y_bf16 && args_.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args_.y) % 4 == 0) {
      StorePairs(output, lane, total);
    } else {
      StoreSingly(output, lane, total);
    }
  }

  // Turned over in the warp, so that a thread has neighbouring outputs of one token.
  __device__ __forceinline__ void StorePairs(int output, int lane,
                                             const float (&total)[T::kSums]) const {
    const int at = output + lane % 4 * 2;
    auto* y = static_cast<__nv_bfloat16*>(args_.y) + lane / 4 * args_.y_stride + at;
#pragma unroll
    for (int j = 0; j < T::kTokens / 8; ++j, y += 8 * args_.y_stride) {
      const bool in = 8 * j + lane / 4 < args_.tokens;
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

  __device__ __forceinline__ void StoreSingly(int output, int lane,
                                              const float (&total)[T::kSums]) const {
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) {
      const int token = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int at = output + lane / 4 + i / 2 % 2 * 8;
      if (token >= args_.tokens || at >= args_.outputs) continue;
      if (args_.y_bf16) {
        static_cast<__nv_bfloat16*>(args_.y)[token * args_.y_stride + at] =
            __float2bfloat16(total[i]);
      } else {
        static_cast<float*>(args_.y)[token * args_.y_stride + at] = total[i];
      }
    }
  }

  // Scales of tokens and outputs.
  __device__ __forceinline__ void ScaleSums(int output, int lane, float (&total)[T::kSums]) const {
    float weight[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t at = min(output + lane / 4 + 8 * h, args_.outputs - 1);
      weight[h] = LoadInPlace(args_.weight_scale + at * args_.weight_scale_stride);
    }
#pragma unroll
    for (int i = 0; i < T::kSums / 2; ++i) {
      const int64_t token = min(i / 2 * 8 + lane % 4 * 2 + i % 2, args_.tokens - 1);
      const float scale = LoadInPlace(args_.x_scale + token * args_.x_scale_stride);
      total[i / 2 * 4 + i % 2] *= scale * weight[0];
      total[i / 2 * 4 + i % 2 + 2] *= scale * weight[1];
    }
  }

  const Fp8GemmKernelArgs& args_;
  const Fp8GemmSplit& split_;
  const Line& line_;
  typename T::Smem& smem_;
  const int wg_ = static_cast<int>(threadIdx.x) / 128;
  const int tid_ = static_cast<int>(threadIdx.x) % 128;
  const int warp_ = tid_ / 32;
  const int lane_ = tid_ % 32;
};

template <typename T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksPerSm)
    Fp8GemmFew(const __grid_constant__ Fp8GemmKernelArgs args,
               const __grid_constant__ Fp8GemmSplit split, const __grid_constant__ Maps maps) {
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
    FenceBarrierInit();
  }
  __syncthreads();
  const Line line = Line::Of<T>(args);
  if (threadIdx.x == T::kConsumers) {
    Produce<T>(line, maps, smem);
  } else {
    WaitForPriorGrid();
    StartNextGrid();
    if (threadIdx.x < T::kConsumers) Consumer<T>(args, split, line, smem).Run();
    if (threadIdx.x >= T::kConsumers + 32) Publish(line, split);
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_few

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_CUH_
