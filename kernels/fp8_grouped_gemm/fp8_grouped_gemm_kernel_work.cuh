// The work of the kernels of kernels/fp8_gemm where rows lie in groups: a warp of each block finds
// the block's tiles, as the rows' numbers on the device say, and the others read them from a ring.
#ifndef KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_WORK_CUH_
#define KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_WORK_CUH_

#include <cuda_runtime.h>

#include <climits>
#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm_kernel_few_work.cuh"
#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_work.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_rows.cuh"
#include "kernels/ptx/mbarrier.cuh"

namespace millrace::fp8_grouped {

// A group, its rows [first, end), and which of its tiles is meant.
struct Place {
  int group, first, end, tile;
};

// Counts the tiles of all groups through. Every lane of a warp holds one of 32 neighbouring groups.
class Cursor {
 public:
  // Tiles have `tile_rows` rows, and of each row of tiles a group has `cols`.
  __device__ __forceinline__ Cursor(const Fp8Groups& groups, int tokens, int tile_rows, int cols)
      : groups_(groups), tokens_(tokens), tile_rows_(tile_rows), cols_(cols) {
    Load(0, 0);
  }

  // All lanes together, here as below. How many tiles there are; all are then behind.
  __device__ __forceinline__ int Count() {
    int last = FromLane(end_tile_, 31);
    while (base_ + 32 < groups_.count) {
      Load(base_ + 32, last);
      last = FromLane(end_tile_, 31);
    }
    return last;
  }

  // Where tile `tile` is; false where there are not so many.
  // REQUIRES: not below the last one asked for.
  __device__ __forceinline__ bool Find(int tile, Place& place) {
    for (int last = FromLane(end_tile_, 31); tile >= last; last = FromLane(end_tile_, 31)) {
      if (base_ + 32 >= groups_.count) return false;
      Load(base_ + 32, last);
    }
    const int lane = __ffs(static_cast<int>(__ballot_sync(kAll, end_tile_ > tile))) - 1;
    place = {base_ + lane, FromLane(rows_.x, lane), FromLane(rows_.y, lane), 0};
    place.tile = tile - (FromLane(end_tile_, lane) - Tiles(place.first, place.end));
    return true;
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;

  static __device__ __forceinline__ int FromLane(int value, int lane) {
    return __shfl_sync(kAll, value, lane);
  }
  __device__ __forceinline__ int Tiles(int first, int end) const {
    return (end - first + tile_rows_ - 1) / tile_rows_ * cols_;
  }
  // Groups from `base` on, ahead of which there are `before` tiles.
  __device__ __forceinline__ void Load(int base, int before) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    base_ = base;
    rows_ = {0, 0};
    if (base + lane < groups_.count) rows_ = RowsOf(groups_, base + lane, tokens_);
    end_tile_ = Tiles(rows_.x, rows_.y);
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int below = __shfl_up_sync(kAll, end_tile_, d);
      if (lane >= d) end_tile_ += below;
    }
    end_tile_ += before;
  }

  const Fp8Groups& groups_;
  const int tokens_, tile_rows_, cols_;
  int base_ = 0;      // lane 0's group
  int2 rows_ = {};    // of this lane's group
  int end_tile_ = 0;  // how many tiles there are up to this lane's group, it included
};

// A place's group where there are no more.
inline constexpr int kEnd = -1;

// Places from the warp that finds them to the threads of its block.
struct Ring {
  static constexpr int kSlots = 4;
  int4 place[kSlots];
  uint64_t full[kSlots];
  uint64_t empty[kSlots];

  __device__ __forceinline__ void Init(int readers) {
    for (int i = 0; i < kSlots; ++i) {
      InitBarrier(&full[i], 1);
      InitBarrier(&empty[i], readers);
    }
  }
};

// A thread's way around the ring.
class RingSide {
 public:
  __device__ __forceinline__ explicit RingSide(Ring& ring) : ring_(ring) {}

  __device__ __forceinline__ void Write(const int4& place) {
    Wait(&ring_.empty[slot_], parity_ ^ 1);
    ring_.place[slot_] = place;
    Arrive(&ring_.full[slot_]);
    Advance();
  }
  __device__ __forceinline__ int4 Read() {
    Wait(&ring_.full[slot_], parity_);
    const int4 place = ring_.place[slot_];
    // Always so. An arrival by itself would not wait for the load ahead of it, and the place might
    // be written again first (kernels/fp8_gemm/few_tokens.md).
    if (place.w >= kEnd) Arrive(&ring_.empty[slot_]);
    Advance();
    return place;
  }

 private:
  __device__ __forceinline__ void Advance() {
    if (++slot_ == Ring::kSlots) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  Ring& ring_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// What both kernels' works have.
struct Work {
  static constexpr bool kGroups = true;
  using Params = Fp8Groups;
  using Shared = Ring;

  // The producer and every consumer read.
  template <typename T>
  static __device__ __forceinline__ void Init(Shared& ring) {
    ring.Init(T::kConsumers + 1);
  }

  // Writes what `place_of(place)` makes of tiles.x, the gridDim.x-th after it, and so on below
  // tiles.y, then the end.
  template <typename PlaceOf>
  static __device__ __forceinline__ void WriteAll(Cursor& cursor, int2 tiles, Ring& ring,
                                                  const PlaceOf& place_of) {
    RingSide side(ring);
    bool found = true;
    for (int tile = tiles.x; found; tile += gridDim.x) {
      Place place = {};
      found = tile < tiles.y && cursor.Find(tile, place);
      if (threadIdx.x % 32 == 0) side.Write(found ? place_of(place) : make_int4(0, 0, 0, kEnd));
    }
  }
};

// Many rows a group: blocks take tiles of one group, in its Order. kRestCols: the width of the last
// round's tiles where so many narrower ones are still a round; 0: as all others.
template <int kRestCols>
struct TilesWork : Work {
  struct Shared {
    Ring tiles, rest;
  };

  template <typename T>
  static __device__ __forceinline__ void Init(Shared& shared) {
    Work::Init<T>(shared.tiles);
    Work::Init<T>(shared.rest);
  }

  template <typename T>
  static __device__ __forceinline__ void Schedule(const Fp8GemmKernelArgs& args,
                                                  const Params& groups, Shared& shared) {
    constexpr int kParts = kRestCols > 0 ? T::kCols / kRestCols : 1;
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    Cursor cursor(groups, args.tokens, T::kRows, (args.outputs + T::kCols - 1) / T::kCols);
    int col = 0;  // of a tile's
    const auto place_of = [&](const Place& place) {
      const fp8_tiles::Order order = fp8_tiles::Order::Of<T>(place.end - place.first, args.outputs);
      const int2 at = order.At(place.tile);
      return make_int4(place.first + at.x * T::kRows, place.end, at.y * T::kCols + col,
                       place.group);
    };
    const int tiles = Cursor(cursor).Count();
    int whole = tiles;
    if (kParts > 1 && tiles % blocks * kParts <= blocks) whole -= tiles % blocks;
    WriteAll(cursor, {block, whole}, shared.tiles, place_of);
    col = block % kParts * kRestCols;
    WriteAll(cursor, {whole + block / kParts, tiles}, shared.rest, place_of);
  }

  template <typename T>
  class Reader {
   public:
    __device__ __forceinline__ Reader(const Fp8GemmKernelArgs&, const Params&, Shared& shared)
        : side_(T::kRest ? shared.rest : shared.tiles) {}

    __device__ __forceinline__ bool Next(fp8_tiles::Tile& tile) {
      const int4 place = side_.Read();
      if (place.w == kEnd) return false;
      tile = {place.x, place.y, place.z, place.w};
      return true;
    }

   private:
    RingSide side_;
  };
};

// Few rows a group: blocks take whole tiles, the rows of the same outputs one after another.
struct FewWork : Work {
  static constexpr bool kCuts = false;
  static constexpr bool kKnownAhead = false;

  // Where each group has a chunk of rows: the block's first piece.
  template <typename T>
  static __device__ __forceinline__ bool Likely(const Fp8GemmKernelArgs& args, const Params& groups,
                                                fp8_few::Piece& piece) {
    const int cols = (args.outputs + T::kOutputs - 1) / T::kOutputs;
    const int group = blockIdx.x / cols, tile = blockIdx.x % cols;
    piece = {tile * T::kOutputs, 0, 0, group, 0, (args.inputs + T::kDepth - 1) / T::kDepth};
    return groups.all_have_rows && group < groups.count;
  }

  template <typename T>
  static __device__ __forceinline__ void Aside(const Fp8GemmKernelArgs& args, const Params& groups,
                                               Shared& ring) {
    const int cols = (args.outputs + T::kOutputs - 1) / T::kOutputs;
    Cursor cursor(groups, args.tokens, T::kTokens, cols);
    WriteAll(cursor, {static_cast<int>(blockIdx.x), INT_MAX}, ring, [&](const Place& place) {
      const int chunks = (place.end - place.first + T::kTokens - 1) / T::kTokens;
      return make_int4(place.first + place.tile % chunks * T::kTokens, place.end,
                       place.tile / chunks * T::kOutputs, place.group);
    });
  }

  template <typename T>
  class Reader {
   public:
    __device__ __forceinline__ Reader(const Fp8GemmKernelArgs& args, Shared& ring)
        : side_(ring), depth_blocks_((args.inputs + T::kDepth - 1) / T::kDepth) {}

    __device__ __forceinline__ bool Next(fp8_few::Piece& piece) {
      const int4 place = side_.Read();
      if (place.w == kEnd) return false;
      piece = {place.z, place.x, place.y, place.w, 0, depth_blocks_};
      return true;
    }

   private:
    RingSide side_;
    int depth_blocks_;
  };
};

}  // namespace millrace::fp8_grouped

#endif  // KERNELS_FP8_GROUPED_GEMM_FP8_GROUPED_GEMM_KERNEL_WORK_CUH_
