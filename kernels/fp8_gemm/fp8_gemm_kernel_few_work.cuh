// Which pieces of y a block of the kernel for few tokens computes, in which order. The kernel asks
// its traits' Work: here the one of a single product; kernels/fp8_grouped_gemm has another.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_WORK_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_WORK_CUH_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/ptx/mbarrier.cuh"

namespace millrace::fp8_few {

// Blocks [begin, end) of 128 of K of a tile: outputs from `output`, tokens from `token` on. Tokens
// from token_end on, another group's, are not written. `group`: which matrix of w.
struct Piece {
  int output, token, token_end, group, begin, end;
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

// The line of units of one product, and who takes what.
struct Line {
  // Whether a tile can be several blocks' work. A block's first piece alone begins inside a tile.
  static constexpr bool kCuts = true;
  // Whether a piece's first token can be any.
  static constexpr bool kGroups = false;
  // Whether a block's work is known before the step's inputs exist.
  static constexpr bool kKnownAhead = true;
  using Params = Fp8GemmSplit;  // what the host tells it besides the product
  struct Shared {};             // what it keeps in the block's shared memory

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

  // One thread, with the kernel's own barriers.
  template <typename T>
  static __device__ __forceinline__ void Init(Shared&) {}

  // The warp beside the producer: if the block begins inside a tile, says that its part of it lies
  // in memory, so that no consumer waits for a fence.
  template <typename T>
  static __device__ __forceinline__ void Aside(const Fp8GemmKernelArgs& args, const Params& split,
                                               Shared&) {
    const Line line = Of<T>(args);
    if (line.Begin(blockIdx.x) % line.depth_blocks == 0) return;
    for (int wg = 0; wg < 2; ++wg) {
      NamedSync(kPart + wg, 128 + 32);
      if (threadIdx.x % 32 == 0) StoreRelease(split.ready + blockIdx.x * 2 + wg, 1);
    }
  }

  // A thread's way through its block's pieces.
  template <typename T>
  class Reader {
   public:
    __device__ __forceinline__ Reader(const Fp8GemmKernelArgs& args, Shared&)
        : tokens_(args.tokens) {
      const Line line = Of<T>(args);
      depth_blocks_ = line.depth_blocks;
      at_ = line.Begin(blockIdx.x);
      end_ = line.Begin(blockIdx.x + 1);
    }

    // The next piece. When there is none, false, and `piece` stays as it is.
    __device__ __forceinline__ bool Next(Piece& piece) {
      if (at_ >= end_) return false;
      const int tile = at_ / depth_blocks_;
      const int begin = at_ - tile * depth_blocks_;
      const int end = min(depth_blocks_, begin + end_ - at_);
      piece = {tile * T::kOutputs, 0, tokens_, 0, begin, end};
      at_ += end - begin;
      return true;
    }

   private:
    int tokens_, depth_blocks_, at_, end_;
  };
};

}  // namespace millrace::fp8_few

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_FEW_WORK_CUH_
