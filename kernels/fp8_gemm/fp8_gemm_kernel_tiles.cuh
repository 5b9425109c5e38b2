// Many tokens, on Hopper: y [M, N] = x [M, K] w[N, K]', E4M3.
//
// Grid: persistent blocks, one an SM.
//   warpgroup 0      producer: one thread keeps the ring of (x, w, scales of x) stages full
//   warpgroups 1, 2  64 rows of the tile each, in kWaves products of kWaveCols columns
// Every 128 of K the tensor cores' sums are scaled and added to f32 sums. While one warpgroup does
// that, the other's products run; nothing makes them alternate (tiles.md). A finished wave is
// rounded, staged in shared memory and stored by the copy engine under the products of the next, a
// tile's last one under those of the next tile. Bound by the tensor cores.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_addends.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_gated.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_traits.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_work.cuh"
#include "kernels/ptx/load.cuh"
#include "kernels/ptx/matrix.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/ptx/pdl.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma_fp8.cuh"

namespace millrace::fp8_tiles {

// Whether y is stored by the copy engine.
__host__ __device__ __forceinline__ bool StoresBoxes(const Fp8GemmKernelArgs& args) {
  return args.y_bf16 && args.y_stride % 8 == 0 && reinterpret_cast<uintptr_t>(args.y) % 16 == 0;
}

// Whether y is what the tensor cores and the scales make of more than one stage, stored by the copy
// engine, or where a group's rows end within a box, 8 outputs at a time.
__host__ __device__ __forceinline__ bool IsPlainY(const Fp8GemmKernelArgs& args) {
  return StoresBoxes(args) && args.outputs % 8 == 0 && !HasAddends(args) && args.inputs > 128;
}

// Rows that a warp stages and stores by itself.
inline constexpr int kWarpRows = 16;

// The row of w that the first column of a tile's box is. Of gates and ups, half of the tile's
// columns are the former, whose rows come first.
template <typename T>
__device__ __forceinline__ int WeightRow(const Fp8GemmKernelArgs& args, const Tile& tile, int box) {
  if constexpr (T::kGated) return (box * args.outputs + tile.col) / 2;
  return tile.group * args.weight_group_rows + tile.col;
}

// The thread that fills stages, from `place` on. The first weights are asked for before what the
// grid ahead writes may be read.
template <typename T>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Fp8GemmKernelArgs& args,
                                      const typename T::Work::Params& work, const Maps& maps,
                                      typename T::Smem& smem, const Place& place)
      : args_(args),
        maps_(maps),
        smem_(smem),
        depth_blocks_((args.inputs + T::kDepth - 1) / T::kDepth),
        tiles_(args, work, smem.work),
        place_(place) {}

  // REQUIRES: the stages are new, and which tiles there are is no matter of the grid ahead.
  __device__ __forceinline__ void LoadFirstWeights() {
    more_ = tiles_.Next(tile_);
    if (!more_) return;
    begun_ = min(depth_blocks_, T::kStages);
    for (int k = 0; k < begun_; ++k) LoadWeights(k, k);
  }

  // Its block's tiles. Where in the ring they end.
  __device__ __forceinline__ Place Run() {
    if (begun_ == 0) more_ = tiles_.Next(tile_);
    for (; more_; more_ = tiles_.Next(tile_)) {
      for (int k = 0; k < depth_blocks_; ++k) {
        const int stage = place_.stage;
        if (begun_ > 0) {
          --begun_;
        } else {
          Wait(&smem_.empty[stage], place_.parity);
          LoadWeights(stage, k);
        }
        uint64_t* const full = &smem_.full[stage];
        LoadBox2(smem_.x[stage], maps_.x, full, k * T::kDepth, tile_.row);
        if constexpr (T::kBlocks) {
          LoadBox2(smem_.x_scale[stage], maps_.x_scale, full, tile_.row & ~3, k);
        }
        if (++place_.stage == T::kStages) place_ = {0, place_.parity ^ 1};
      }
    }
    return place_;
  }

 private:
  // Announces all that the stage is to have.
  __device__ __forceinline__ void LoadWeights(int stage, int k) {
    ArriveExpect(&smem_.full[stage], T::kStageBytes);
#pragma unroll
    for (int box = 0; box < T::kBoxes; ++box) {
      LoadBox2(smem_.w[stage] + box * T::kBoxRows * T::kDepth, T::kRest ? maps_.rest_w : maps_.w,
               &smem_.full[stage], k * T::kDepth, WeightRow<T>(args_, tile_, box));
    }
  }

  const Fp8GemmKernelArgs& args_;
  const Maps& maps_;
  typename T::Smem& smem_;
  const int depth_blocks_;
  typename T::Work::template Reader<T> tiles_;
  Place place_;
  Tile tile_ = {};
  bool more_ = false;
  int begun_ = 0;  // stages that have their weights already
};

// A warpgroup's 64 rows of one tile. Each thread has two of the rows, 8 apart.
template <typename T>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const Fp8GemmKernelArgs& args,
                                      const typename T::Work::Params& work, const Maps& maps,
                                      typename T::Smem& smem, const Place& place)
      : args_(args),
        maps_(maps),
        smem_(smem),
        first_x_matrix_(Uniform(WgmmaMatrix128(smem.x[0] + wg_ * 64 * T::kDepth, 1024, 0))),
        first_w_matrix_(Uniform(WgmmaMatrix128(smem.w[0], 1024, 0))),
        x_matrix_(WgmmaAdvance(first_x_matrix_, place.stage * sizeof(smem.x[0]))),
        w_matrix_(WgmmaAdvance(first_w_matrix_, place.stage * sizeof(smem.w[0]))),
        tiles_(args, work, smem.work),
        stage_(place.stage),
        parity_(place.parity) {}

  // Its block's tiles. Where in the ring they end.
  __device__ __forceinline__ Place Run() {
    const int depth_blocks = (args_.inputs + T::kDepth - 1) / T::kDepth;
    more_ = tiles_.Next(next_);
    PointAtScales(next_);
    LoadScales();
    while (more_) {
      before_ = tile_;
      tile_ = next_;
      if constexpr (!T::kLate) more_ = tiles_.Next(next_);
      if constexpr (!T::kBlocks) SetSumsToZero();
      if (!T::kPlainY && depth_blocks == 1) {
        Step<true, true>();
      } else {
        Step<true, false>();
        for (int k = 2; k < depth_blocks; ++k) Step<false, false>();
        Step<false, true>();
      }
      if constexpr (T::kGated) {
        StoreGated();
      } else if constexpr (!T::kLate) {
        StoreWave(tile_, T::kWaves - 1);
      }
    }
    if constexpr (T::kLate) StoreWave(tile_, T::kWaves - 1);
    if (lane_ == 0) StoreWait();
    return {stage_, parity_};
  }

 private:
  static constexpr int kSlabBytes = 64 * 128;  // of the staged y

  // The low word, which every thread of the warp has alike, by way of a shuffle: then the compiler
  // knows, and computes addresses once a warp.
  static __device__ __forceinline__ uint64_t Uniform(uint64_t matrix) {
    const uint32_t low = __shfl_sync(0xffffffffu, static_cast<uint32_t>(matrix), 0);
    return (matrix & 0xffffffff00000000) | low;
  }

  __device__ __forceinline__ void PointAtScales(const Tile& tile) {
    if constexpr (T::kBlocks) {
      const int last = (args_.outputs - 1) / 128;
      const float* const scales = args_.weight_scale + tile.group * args_.weight_scale_group_stride;
#pragma unroll
      for (int i = 0; i < T::kWaves * T::kGroups; ++i) {
        const int block = T::kGated ? WeightRow<T>(args_, tile, i) / 128
                                    : min((tile.col + i * T::kGroupCols) / 128, last);
        w_scale_at_[i] = scales + block * args_.weight_scale_stride;
      }
    }
  }

  // Scales of w of the stage after the present one.
  __device__ __forceinline__ void LoadScales() {
    if constexpr (T::kBlocks) {
#pragma unroll
      for (int i = 0; i < T::kWaves * T::kGroups; ++i) w_scale_[i] = __ldg(w_scale_at_[i]++);
    }
  }

  __device__ __forceinline__ void SetSumsToZero() {
#pragma unroll
    for (int wave = 0; wave < T::kWaves; ++wave) {
#pragma unroll
      for (int i = 0; i < T::kWaveCols / 2; ++i) total_[wave][i] = 0;
    }
  }

  // One stage, of a tile the first, the last, both or neither.
  template <bool kFirst, bool kLast>
  __device__ __forceinline__ void Step() {
    if (!ready_) Wait(&smem_.full[stage_], parity_);
    float w_scale[T::kWaves * T::kGroups];
#pragma unroll
    for (int i = 0; i < T::kWaves * T::kGroups; ++i) w_scale[i] = w_scale_[i];
    const int row = wg_ * 64 + warp_ * 16 + lane_ / 4;
    float x_scale[2] = {1, 1};
    if constexpr (T::kBlocks) {
      const int shift = T::Work::kGroups ? tile_.row & 3 : 0;
      const float* const scales = smem_.x_scale[stage_] + row + shift;
      x_scale[0] = scales[0];
      x_scale[1] = scales[8];
    }
#pragma unroll
    for (int wave = 0; wave < T::kWaves; ++wave) {
      float part[T::kWaveCols / 2];
      const uint64_t w = WgmmaAdvance(w_matrix_, wave * T::kWaveCols * T::kDepth);
      WgmmaFence();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        WgmmaE4M3<T::kWaveCols>::FromShared(part, WgmmaAdvance(x_matrix_, 32 * i),
                                            WgmmaAdvance(w, 32 * i), i > 0);
      }
      WgmmaCommit();
      // What else there is to do, while they run.
      if (wave == 0) {
        if constexpr (kFirst && T::kLate) more_ = tiles_.Next(next_);
        if constexpr (kLast) PointAtScales(next_);
        LoadScales();
      }
      if constexpr (kFirst && T::kLate) {
        if (wave + 1 == T::kWaves) StoreWave(before_, wave);
      }
      if constexpr (kLast && !T::kGated) {
        if (wave > 0) StoreWave(tile_, wave - 1);
      }
      WgmmaWait<0>();
      WgmmaHold(part);
      // x_scale was read before the products: nothing in the code says that it has come, the
      // machine code (nvcc 13.0) waits for it above (few_tokens.md, "An arrival does not wait for
      // loads").
      if (wave + 1 == T::kWaves) ReleaseStage();
      float scale[2 * T::kGroups];
#pragma unroll
      for (int i = 0; i < 2 * T::kGroups; ++i) {
        scale[i] = T::kBlocks ? x_scale[i % 2] * w_scale[wave * T::kGroups + i / 2] : 1;
      }
      Promote<kFirst>(part, total_[wave], scale);
    }
  }

  __device__ __forceinline__ void ReleaseStage() {
    __syncwarp();
    if (lane_ == 0) Arrive(&smem_.empty[stage_]);
    x_matrix_ = WgmmaAdvance(x_matrix_, sizeof(smem_.x[0]));
    w_matrix_ = WgmmaAdvance(w_matrix_, sizeof(smem_.w[0]));
    if (++stage_ == T::kStages) {
      stage_ = 0;
      parity_ ^= 1;
      x_matrix_ = first_x_matrix_;
      w_matrix_ = first_w_matrix_;
    }
    ready_ = TestWait(&smem_.full[stage_], parity_);  // the answer comes while sums are added
  }

  template <bool kFirst>
  static __device__ __forceinline__ void Promote(const float (&part)[T::kWaveCols / 2],
                                                 float (&total)[T::kWaveCols / 2],
                                                 const float (&scale)[2 * T::kGroups]) {
#pragma unroll
    for (int i = 0; i < T::kWaveCols / 2; ++i) {
      const float scaled = part[i] * scale[i / (T::kGroupCols / 2) * 2 + i / 2 % 2];
      // Without scales the products would have to be made in the registers of `total`, for which
      // there are too few.
      total[i] = kFirst && T::kBlocks ? scaled : total[i] + scaled;
    }
  }

  // y of a wave from its sums, each warp its rows: by the copy engine where rows lie on 16 bytes,
  // else by each thread. Nothing where the tile is none.
  __device__ __forceinline__ void StoreWave(const Tile& tile, int wave) {
    float(&total)[T::kWaveCols / 2] = total_[wave];
    const int col = tile.col + wave * T::kWaveCols;
    const int first_row = tile.row + wg_ * 64 + warp_ * kWarpRows;
    const int row = first_row + lane_ / 4;
    if constexpr (!T::kBlocks) ScaleSums(total, row, col);
    // A box ends where the tensor does, not where a group does.
    const bool ends = T::Work::kGroups && first_row + kWarpRows > tile.row_end;
    if constexpr (!T::kPlainY) {
      if (HasAddends(args_)) AddAddends(total, tile, row, col);
      if (ends || !StoresBoxes(args_)) return StoreDirect(total, tile, row, col);
    }
    uint8_t* const staged = smem_.y[wg_][0] + warp_ * kWarpRows * 128;
    if (lane_ == 0) StoreWaitRead();
    __syncwarp();
    uint8_t* const to = staged + lane_ % kWarpRows * 128;
#pragma unroll
    for (int j = 0; j < T::kWaveCols / 8; j += 2) {
      const float* const s = total + 4 * j;
      StoreMatrix4(
          to + j / 8 * kSlabBytes + ((j % 8 + lane_ / kWarpRows) ^ (lane_ & 7)) * 16,
          {PackBf16(s[0], s[1]), PackBf16(s[2], s[3]), PackBf16(s[4], s[5]), PackBf16(s[6], s[7])});
    }
    FenceSharedForAsync();
    __syncwarp();
    if constexpr (T::kPlainY) {
      if (ends) return StoreRows(staged, tile.row_end, first_row, col);
    }
    if (lane_ == 0 && tile.row_end > 0) {
#pragma unroll
      for (int slab = 0; slab < T::kSlabs; ++slab) {
        StoreBox2(maps_.y, staged + slab * kSlabBytes, col + slab * 64, first_row);
      }
      StoreCommit();
    }
  }

  // A warp's rows of the staged wave up to the group's end, 16 bytes a thread.
  __device__ __forceinline__ void StoreRows(const uint8_t* staged, int row_end, int first_row,
                                            int col) {
    constexpr int kPieces = T::kWaveCols / 8;  // of a row
    for (int i = lane_; i < (row_end - first_row) * kPieces; i += 32) {
      const int row = i / kPieces, piece = i % kPieces, output = col + piece * 8;
      if (output >= args_.outputs) continue;
      const uint8_t* const from =
          staged + piece / 8 * kSlabBytes + row * 128 + ((piece % 8) ^ (row & 7)) * 16;
      __nv_bfloat16* const to =
          static_cast<__nv_bfloat16*>(args_.y) + (first_row + row) * args_.y_stride + output;
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
  }

  // Codes of both waves, a scale for each of the tile's rows or the given one.
  __device__ __forceinline__ void StoreGated() {
    const int first_row = tile_.row + wg_ * 64;
    const int row = warp_ * 16 + lane_ / 4;
    if constexpr (!T::kBlocks) {
      ScaleSums(total_[0], first_row + row, WeightRow<T>(args_, tile_, 0));
      ScaleSums(total_[1], first_row + row, WeightRow<T>(args_, tile_, 1));
    }
    GatedScales scales = {};
    Gate(args_.gated, total_[1], total_[0], scales);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int token = first_row + row + 8 * h;
      const bool mine = lane_ % 4 == 0 && token < tile_.row_end;
      if (mine && args_.gated.rounding != CodeScale::kGiven) {
        args_.gated.scale[tile_.col / T::kCols * args_.gated.scale_stride + token] =
            scales.of_row[h];
      }
    }
    if (lane_ == 0) StoreWaitRead();
    __syncwarp();
    StageCodes(total_[0], scales, row, smem_.y[wg_][0]);
    FenceSharedForAsync();
    __syncwarp();
    if (lane_ == 0) {
      StoreBox2(maps_.y, smem_.y[wg_][0] + warp_ * kWarpRows * 128, tile_.col / 2,
                first_row + warp_ * kWarpRows);
      StoreCommit();
    }
  }

  // Scales of tokens and outputs.
  __device__ __forceinline__ void ScaleSums(float (&total)[T::kWaveCols / 2], int row, int col) {
    // Opaque, or the addresses of every output would be kept in registers through the whole loop.
    asm volatile("" : "+r"(row), "+r"(col));
    float x_scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t token = min(row + 8 * h, args_.tokens - 1);
      x_scale[h] = LoadInPlace(args_.x_scale + token * args_.x_scale_stride);
    }
#pragma unroll
    for (int i = 0; i < T::kWaveCols / 4; ++i) {
      const int64_t output = min(col + i / 2 * 8 + lane_ % 4 * 2 + i % 2, args_.outputs - 1);
      const float scale = LoadInPlace(args_.weight_scale + output * args_.weight_scale_stride);
      total[i / 2 * 4 + i % 2] *= x_scale[0] * scale;
      total[i / 2 * 4 + i % 2 + 2] *= x_scale[1] * scale;
    }
  }

  // Bias and residual: all that this warpgroup's rows need is read before y of them is stored.
  __device__ __forceinline__ void AddAddends(float (&total)[T::kWaveCols / 2], const Tile& tile,
                                             int row, int col) {
    asm volatile("" : "+r"(row), "+r"(col));
#pragma unroll
    for (int i = 0; i < T::kWaveCols / 2; ++i) {
      const int r = row + i / 2 % 2 * 8;
      const int c = col + i / 4 * 8 + lane_ % 4 * 2 + i % 2;
      if (r < tile.row_end && c < args_.outputs) total[i] = WithAddends(args_, r, c, total[i]);
    }
  }

  __device__ __forceinline__ void StoreDirect(const float (&total)[T::kWaveCols / 2],
                                              const Tile& tile, int row, int col) {
#pragma unroll
    for (int j = 0; j < T::kWaveCols / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = row + i / 2 * 8;
        const int c = col + j * 8 + lane_ % 4 * 2 + i % 2;
        if (r < tile.row_end && c < args_.outputs) StoreElement(args_, r, c, total[4 * j + i]);
      }
    }
  }

  const Fp8GemmKernelArgs& args_;
  const Maps& maps_;
  typename T::Smem& smem_;
  const int wg_ = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128 - 1, 0);
  const int tid_ = static_cast<int>(threadIdx.x) % 128;
  const int warp_ = tid_ / 32;
  const int lane_ = tid_ % 32;
  const uint64_t first_x_matrix_, first_w_matrix_;  // of the first stage
  uint64_t x_matrix_, w_matrix_;
  typename T::Work::template Reader<T> tiles_;
  Tile tile_ = {}, before_ = {}, next_ = {};  // before_: what is not stored yet
  bool more_ = false;                         // next_ is a tile
  int stage_;
  uint32_t parity_;
  bool ready_ = false;                               // the stage is known to be full
  const float* w_scale_at_[T::kWaves * T::kGroups];  // the next to load
  float w_scale_[T::kWaves * T::kGroups] = {};
  float total_[T::kWaves][T::kWaveCols / 2] = {};
};

// Rest: the traits of the tiles that come after all of T's, or void.
template <typename T, typename Rest>
__global__ void __launch_bounds__(T::kThreads, 1)
    Fp8GemmTiles(const __grid_constant__ Fp8GemmKernelArgs args,
                 const __grid_constant__ typename T::Work::Params work,
                 const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint8_t raw[];
  typename T::Smem& smem = *reinterpret_cast<typename T::Smem*>(raw);
  constexpr bool kHasRest = !std::is_void_v<Rest>;
  if (threadIdx.x == 0) {
    PrefetchMap(maps.x);
    PrefetchMap(maps.w);
    for (int i = 0; i < T::kStages; ++i) {
      InitBarrier(&smem.full[i], 1);
      InitBarrier(&smem.empty[i], T::kConsumers / 32);
    }
    T::Work::template Init<T>(smem.work);
    FenceBarrierInit();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    ReleaseRegisters<24>();
    if (threadIdx.x == 0) {
      Producer<T> producer(args, work, maps, smem, {0, 1});
      if constexpr (!T::Work::kGroups) producer.LoadFirstWeights();
      WaitForPriorGrid();
      StartNextGrid();
      const Place place = producer.Run();
      if constexpr (kHasRest) Producer<Rest>(args, work, maps, smem, place).Run();
    } else {
      WaitForPriorGrid();
    }
    if (threadIdx.x / 32 == 1) T::Work::template Schedule<T>(args, work, smem.work);
    __syncwarp();
  } else {
    WaitForPriorGrid();
    ClaimRegisters<240>();
    const Place place = Consumer<T>(args, work, maps, smem, {}).Run();
    if constexpr (kHasRest) Consumer<Rest>(args, work, maps, smem, place).Run();
  }
#else
  __trap();  // compiled for another architecture, or for sm_90 without its own instructions
#endif
}

}  // namespace millrace::fp8_tiles

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_CUH_
