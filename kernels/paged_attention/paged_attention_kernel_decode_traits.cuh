// Sizes of decode, and how its kinds of cache differ: see paged_attention_kernel_decode_bf16.cuh
// and _fp8.cuh.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_TRAITS_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_TRAITS_CUH_

#include <cstdint>

namespace millrace::decode {

constexpr int kPieceKeys = 16;                    // of a matrix instruction
constexpr int kSmallWarps = 4, kLargeWarps = 16;  // of a block

// Lane 4 g + t.
struct Lane {
  int g, t;
};

template <int kHeadDim, int kTileCount, int kWarpCount, typename CacheType>
struct Traits {
  using Cache = CacheType;
  static constexpr int kDim = kHeadDim;
  static constexpr int kTiles = kTileCount;
  static constexpr int kWarps = kWarpCount;
  // A warp takes a chunk of so many pieces at a time.
  static constexpr int kPieces = Cache::Pieces(kDim, kTiles, kWarps == kLargeWarps);
  static constexpr int kSteps = kDim / 32;  // 16 bytes of a query, as the lanes use them
  static constexpr int kRows = 8 * kTiles;
  static constexpr bool kQueriesInRegisters = kTiles == 1 && kDim <= 128 && kWarps == kSmallWarps;
  // Of a multiprocessor, which bounds the registers: 12 warps of up to 168 in all, 8 where a chunk
  // takes more, or one block of 16 warps of up to 128.
  static constexpr int kBlocks = kWarps == kLargeWarps ? 1 : kTiles == 1 && kDim <= 128 ? 3 : 2;
  static constexpr int kPages = 512;  // of the part that are kept at hand

  struct Shared {
    uint32_t pages[kPages];
    uint4 q[kQueriesInRegisters ? 1 : kTiles * kSteps * 32];  // as the lanes use them
    float2 stats[kWarps][kRows];
    float sums[kWarps][8][kDim + 4];
  };
};

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_TRAITS_CUH_
