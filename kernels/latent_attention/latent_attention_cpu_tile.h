// What the CPU row hands to the code of one instruction set.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CPU_TILE_H_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CPU_TILE_H_

#include <cstdint>

#include "kernels/latent_cache/latent_rows_cpu.h"

namespace millrace {

// Heads of one token: everything that their outputs depend on.
struct LatentTile {
  const void* q = nullptr;  // of the tile's first head; heads are head_stride elements apart
  void* out = nullptr;
  int64_t q_head_stride = 0;
  int64_t out_head_stride = 0;
  const float* sinks = nullptr;  // of the tile's heads
  int32_t heads = 0;
  int32_t dim = 0;
  float scale = 0;

  const int32_t* pages = nullptr;  // of the token's sequence
  LatentRows window;
  int64_t first = 0;  // positions of the window's rows: first to last
  int64_t last = 0;
  LatentRows compressed;
  const int32_t* selected = nullptr;  // null: all entries below `visible`
  int64_t num_selected = 0;           // elements of `selected`
  int64_t visible = 0;                // entries that the token sees

  float* scratch = nullptr;  // LatentScratchFloats(heads, dim)
};

using LatentAttendFn = void (*)(const LatentTile&);

struct LatentKernels {
  LatentAttendFn attend[2];  // [q is bf16]
};

extern const LatentKernels kLatentScalar;
extern const LatentKernels kLatentAvx2;
extern const LatentKernels kLatentAvx512;

// Heads are taken in panels, of at most so many.
inline constexpr int64_t kLatentMaxPanel = 32;
// Keys of a block, and floats after each of its rows: rows a power of two of bytes apart would
// share a few sets of the cache.
inline constexpr int64_t kLatentBlock = 64;
inline constexpr int64_t kLatentRowPadding = 16;

constexpr int64_t LatentPaddedHeads(int64_t heads) {
  return (heads + kLatentMaxPanel - 1) / kLatentMaxPanel * kLatentMaxPanel;
}

// Queries and accumulators, three numbers a head, a block of keys and its scores.
constexpr int64_t LatentScratchFloats(int64_t heads, int64_t dim) {
  return LatentPaddedHeads(heads) * (2 * dim + 3) + kLatentBlock * (dim + kLatentRowPadding) +
         kLatentBlock * kLatentBlock;
}

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_CPU_TILE_H_
