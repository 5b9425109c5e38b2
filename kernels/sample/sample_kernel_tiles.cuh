// A row of logits as the threads of its blocks see it. Each warp owns a contiguous range of ids, in
// tiles of 128 logits, four a lane; the warps of the blocks of a cluster follow one another. The
// first tiles of a warp may lie in registers, the rest in shared memory; or all in global memory.
#ifndef KERNELS_SAMPLE_SAMPLE_KERNEL_TILES_CUH_
#define KERNELS_SAMPLE_SAMPLE_KERNEL_TILES_CUH_

#include <cfloat>
#include <cstdint>

#include "kernels/sample/sample_kernel.h"
#include "kernels/sample/sample_kernel_cluster.cuh"

namespace millrace {

inline constexpr int kSampleWarps = kSampleThreads / 32;
// Pieces in which a warp's tiles arrive, so that the first are looked at while the last travel.
inline constexpr int kSampleParts = 4;
// Stands past the vocabulary: finite, and below any logit but its equal. Its ids are V and more.
inline constexpr float kSamplePad = -FLT_MAX;

// The largest logit that a thread saw, and its lowest id.
struct SampleBest {
  float logit = -INFINITY;
  int32_t id = 0;
};

// 2^x.
__device__ __forceinline__ float Exp2(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

__device__ __forceinline__ float MaxOf(const float4& v) {
  return fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
}

// kHeld tiles in registers; kStaged: the rest in shared memory, else (kHeld 0) in global memory.
template <int kHeld, bool kStaged>
struct SampleTiles {
  static_assert(kStaged || kHeld == 0);

  float4 held[kHeld > 0 ? kHeld : 1];
  float* shared = nullptr;        // of this warp: [tiles - kHeld][kSampleTile]
  const float* global = nullptr;  // the row
  int32_t warp_first = 0;         // id of the warp's first logit
  int32_t tiles = 0;
  int32_t vocabulary = 0;
  bool aligned = false;  // the row starts on 16 bytes

  __device__ __forceinline__ int32_t first() const {
    return warp_first + static_cast<int32_t>(threadIdx.x % 32) * 4;
  }

  // Four logits of the row in global memory.
  __device__ __forceinline__ float4 LoadGlobal(int32_t id) const {
    if (aligned && id + 3 < vocabulary) return *reinterpret_cast<const float4*>(global + id);
    const auto one = [&](int32_t i) { return i < vocabulary ? global[i] : kSamplePad; };
    return {one(id), one(id + 1), one(id + 2), one(id + 3)};
  }

  __device__ __forceinline__ float4 Load(int32_t tile) const {
    if constexpr (kStaged) {
      return *reinterpret_cast<const float4*>(shared + (tile - kHeld) * kSampleTile +
                                              threadIdx.x % 32 * 4);
    } else {
      return LoadGlobal(first() + tile * kSampleTile);
    }
  }

  // Calls body(v, id) for this lane's logits in the order of their ids: v holds those of id to
  // id + 3.
  template <typename Body>
  __device__ __forceinline__ void ForEach(const Body& body) const {
    const int32_t id = first();
#pragma unroll
    for (int t = 0; t < kHeld; ++t) body(held[t], id + t * kSampleTile);
#pragma unroll 4
    for (int t = kHeld; t < tiles; ++t) body(Load(t), id + t * kSampleTile);
  }

  // ForEach() where `mine` says which lanes have anything to see; the others may be spared. Where
  // they are few, the warp looks through the tiles of one of them at a time.
  template <typename Body>
  __device__ __forceinline__ void ForEachOf(bool mine, const Body& body) const {
    constexpr int kFew = 8;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
    uint32_t lanes = __ballot_sync(0xffffffffu, mine);
    if (!kStaged || __popc(lanes) > kFew || tiles - kHeld > 32) return ForEach(body);
    if (mine) {
#pragma unroll
      for (int t = 0; t < kHeld; ++t) body(held[t], first() + t * kSampleTile);
    }
    for (; lanes != 0; lanes &= lanes - 1) {
      const int32_t offset = lane * kSampleTile + (__ffs(static_cast<int>(lanes)) - 1) * 4;
      if (lane >= tiles - kHeld) continue;
      body(*reinterpret_cast<const float4*>(shared + offset),
           warp_first + kHeld * kSampleTile + offset);
    }
    __syncwarp();
  }

  // The id of the first logit equal to `logit` among this lane's four at `id`.
  __device__ __forceinline__ SampleBest Resolve(float logit, int32_t id) const {
    const int32_t tile = (id - first()) / kSampleTile;
    float4 v = {logit, 0, 0, 0};
    if (tile >= kHeld) v = Load(tile);
#pragma unroll
    for (int t = 0; t < kHeld; ++t) {
      if (t == tile) v = held[t];
    }
    const int32_t offset = v.x == logit ? 0 : v.y == logit ? 1 : v.z == logit ? 2 : 3;
    return {logit, id + offset};
  }

  __device__ __forceinline__ SampleBest Best() const {
    float top = -INFINITY;
    int32_t at = first();
    ForEach([&](const float4& v, int32_t id) {
      const float m = MaxOf(v);
      if (m > top) top = m, at = id;
    });
    return Resolve(top, at);
  }

  // Writes the tiles that lie in registers to `to`, where `mine`.
  __device__ __forceinline__ void StoreHeld(float* to, bool mine) const {
    if (!mine) return;
#pragma unroll
    for (int t = 0; t < kHeld; ++t) {
      *reinterpret_cast<float4*>(to + t * kSampleTile + threadIdx.x % 32 * 4) = held[t];
    }
  }

  // The first id of warp w of this block.
  __device__ __forceinline__ int32_t WarpFirst(int32_t w) const {
    return warp_first + (w - static_cast<int32_t>(threadIdx.x / 32)) * tiles * kSampleTile;
  }

  // Logit i of warp w of this block, its held tiles at `stored`.
  __device__ __forceinline__ float At(const float* stored, int32_t w, int32_t i) const {
    if constexpr (!kStaged) {
      const int32_t id = WarpFirst(w) + i;
      return id < vocabulary ? global[id] : kSamplePad;
    } else {
      if (i < kHeld * kSampleTile) return stored[i];
      const int32_t warps = w - static_cast<int32_t>(threadIdx.x / 32);
      return shared[warps * (tiles - kHeld) * kSampleTile + i - kHeld * kSampleTile];
    }
  }

  // Tiles of part p: [PartBegin(p), PartBegin(p + 1)).
  __device__ __forceinline__ int32_t PartBegin(int p) const {
    return kHeld + (tiles - kHeld) * p / kSampleParts;
  }

  // Starts the reads of this warp's tiles. `barriers`: kSampleParts of this warp, initialised.
  __device__ __forceinline__ void StartLoading(uint64_t* barriers) {
#pragma unroll
    for (int t = 0; t < kHeld; ++t) held[t] = LoadGlobal(first() + t * kSampleTile);
    if constexpr (!kStaged) return;
    const int32_t lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t begin = warp_first + kHeld * kSampleTile;
    const int32_t size = (tiles - kHeld) * kSampleTile;
    const int32_t valid = min(max(vocabulary - begin, 0), size);
    const int32_t bulk = aligned ? valid / 4 * 4 : 0;
    if (aligned && lane < kSampleParts) {
      const int32_t from = min((PartBegin(lane) - kHeld) * kSampleTile, bulk);
      const int32_t to = min((PartBegin(lane + 1) - kHeld) * kSampleTile, bulk);
      StartBulkCopy(shared + from, global + begin + from, static_cast<uint32_t>(to - from) * 4,
                    barriers + lane);
    }
#pragma unroll 8
    for (int32_t i = bulk + lane; i < size; i += 32) {
      shared[i] = i < valid ? global[begin + i] : kSamplePad;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void WaitPart(uint64_t* barriers, int part) const {
    if (kStaged && aligned) WaitBarrier(barriers + part);
  }

  // Waits for the tiles as they come. `finite` becomes false where a logit is not. With kMass
  // `mass` becomes the sum of 2^((x - the lane's best) * factor).
  template <bool kMass>
  __device__ __forceinline__ SampleBest FinishLoading(uint64_t* barriers, float factor,
                                                      bool& finite, float& mass) const {
    float top = -INFINITY, sum = 0;
    int32_t at = first();
    float zeros = 0;  // x * 0 is NaN for what is not finite
    const auto look = [&](const float4& v, int32_t id) {
      zeros = fmaf(v.x, 0.0f, zeros);
      zeros = fmaf(v.y, 0.0f, zeros);
      zeros = fmaf(v.z, 0.0f, zeros);
      zeros = fmaf(v.w, 0.0f, zeros);
      const float m = MaxOf(v);
      if (m > top) {
        if (kMass) sum *= Exp2((top - m) * factor);
        top = m, at = id;
      }
      if (!kMass) return;
      sum += Exp2((v.x - top) * factor) + Exp2((v.y - top) * factor);
      sum += Exp2((v.z - top) * factor) + Exp2((v.w - top) * factor);
    };
#pragma unroll
    for (int t = 0; t < kHeld; ++t) look(held[t], first() + t * kSampleTile);
#pragma unroll 1
    for (int part = 0; part < kSampleParts; ++part) {
      WaitPart(barriers, part);
#pragma unroll 4
      for (int t = PartBegin(part); t < PartBegin(part + 1); ++t) {
        look(Load(t), first() + t * kSampleTile);
      }
    }
    finite = zeros == 0.0f;
    mass = sum;
    return Resolve(top, at);
  }
};

}  // namespace millrace

#endif  // KERNELS_SAMPLE_SAMPLE_KERNEL_TILES_CUH_
