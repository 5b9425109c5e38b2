// What a block of the kernel for many tokens is made of.
#ifndef KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_TRAITS_CUH_
#define KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_TRAITS_CUH_

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_work.cuh"

namespace millrace::fp8_tiles {

template <typename Own, typename Wider>
struct SmemOf {
  using Type = typename Wider::Smem;
};
template <typename Own>
struct SmemOf<Own, void> {
  using Type = Own;
};

template <int kWavesOfTile, int kColsOfWave, bool kOfBlocks, typename WorkOfBlocks = Dense,
          bool kGatesAndUps = false, bool kOfPlainY = false, typename TheWider = void>
struct Traits {
  using Work = WorkOfBlocks;
  // The first wave of a tile are gates, the second their ups, and what is stored are codes of
  // silu(gate) up (kernels/fp8_gate_up).
  static constexpr bool kGated = kGatesAndUps;
  static_assert(!kGated || (kWavesOfTile == 2 && kColsOfWave == 128));
  // Only for calls of which IsPlainY() holds. What the others need slows the loop even where a
  // branch skips it (tiles.md).
  static constexpr bool kPlainY = kOfPlainY;
  static constexpr int kWaves = kWavesOfTile;
  static constexpr int kWaveCols = kColsOfWave;
  static constexpr bool kBlocks = kOfBlocks;  // scales of 128 x 128 blocks
  // Whether a tile's last wave is stored, and the tile after the next found, under products of the
  // next one. Scales of vectors leave no registers for it: the products would run one by one.
  static constexpr bool kLate = kBlocks && !kGated;

  static constexpr int kStages = 4;
  static constexpr int kDepth = 128;  // of K, a stage
  static constexpr int kRows = 128;
  static constexpr int kCols = kWaves * kWaveCols;
  // Rows of w in a box: gates and ups lie apart, in two.
  static constexpr int kBoxes = kGated ? 2 : 1;
  static constexpr int kBoxRows = kCols / kBoxes;
  static constexpr int kConsumers = 256;
  static constexpr int kThreads = kConsumers + 128;
  // Of the tiles that a block takes before these, in whose shared memory these have room
  // (two widths, a last round); void where these are all.
  using Wider = TheWider;
  static constexpr bool kRest = !std::is_void_v<Wider>;
  // Columns of a wave that share a scale of w, and how many such groups there are.
  static constexpr int kGroupCols = kWaveCols % 128 == 0 && !kRest ? 128 : 64;
  static constexpr int kGroups = kWaveCols / kGroupCols;
  // Scales of x that a stage loads: boxes begin on 16 bytes, a group's rows anywhere.
  static constexpr int kScaleBox = kRows + (Work::kGroups ? 4 : 0);
  static constexpr int kSlabs = kWaveCols / 64;  // of 128-byte rows, in the staged y

  struct OwnSmem {
    alignas(1024) uint8_t x[kStages][kRows * kDepth];
    alignas(1024) uint8_t w[kStages][kCols * kDepth];
    alignas(1024) uint8_t y[2][kSlabs][64 * 128];
    alignas(128) float x_scale[kStages][(kScaleBox + 31) / 32 * 32];
    uint64_t full[kStages];
    uint64_t empty[kStages];
    typename Work::Shared work;
  };
  using Smem = typename SmemOf<OwnSmem, Wider>::Type;
  static_assert(sizeof(Smem) <= 227 * 1024, "does not fit one Hopper block");
  static constexpr uint32_t kStageBytes =
      kRows * kDepth + kCols * kDepth + (kBlocks ? kScaleBox * 4 : 0);
};

struct Maps {
  CUtensorMap x, w, x_scale, y;
  CUtensorMap rest_w;  // w for tiles that have a Wider
};

// A place in the ring of stages.
struct Place {
  int stage = 0;
  uint32_t parity = 0;  // of the phase that the stage's barrier is waited for
};

}  // namespace millrace::fp8_tiles

#endif  // KERNELS_FP8_GEMM_FP8_GEMM_KERNEL_TILES_TRAITS_CUH_
