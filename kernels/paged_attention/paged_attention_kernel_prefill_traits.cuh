// Sizes, shared memory and the tile of prefill for Hopper.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_TRAITS_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_TRAITS_CUH_

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/wgmma_bf16.cuh"
#include "kernels/ptx/wgmma_f16.cuh"

namespace millrace::prefill {

struct Maps {
  CUtensorMap q;  // (column, head, token)
  CUtensorMap k;  // (column, token of the page, kv head, page)
  CUtensorMap v;
};

// What the consumers need to know of a tile.
struct Tile {
  int32_t blocks = 0;     // of keys; 0: no tile is left
  int32_t position = 0;   // of the first token in its sequence
  int32_t first_row = 0;  // of q and out
  int32_t tokens = 0;     // of the tile
  int32_t kv_head = 0;
};

// Sizes that do not follow from the head's. kCodeStages: blocks of codes on their way to the ring,
// 0 where the cache is bf16.
struct Sizes {
  int keys, stages, q_buffers, warpgroups;
  int code_stages = 0;
};

template <int kHeadDimension, Sizes kSizes>
struct Traits {
  static constexpr int kHeadDim = kHeadDimension;
  static constexpr int kKeys = kSizes.keys;  // keys of a block
  // A box is a page's rows, or as many of them as divide a block: both are powers of two.
  static constexpr int kMaxBoxRows = kKeys & -kKeys;
  static constexpr int kStages = kSizes.stages;         // blocks of the ring, K and V in turn
  static constexpr int kQBuffers = kSizes.q_buffers;    // tiles of queries held
  static constexpr int kConsumers = kSizes.warpgroups;  // of 64 rows each
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kSlabs = (kHeadDim + 63) / 64;  // 64 columns, the width of a swizzled row
  static constexpr int kSlabRowBytes = 128;
  static constexpr int kQSlabBytes = kRows * kSlabRowBytes;
  static constexpr int kSlabBytes = kKeys * kSlabRowBytes;
  static constexpr int kBlockBytes = kSlabs * kSlabBytes;
  // A cache of codes: blocks land as codes and three warps of the producer's warpgroup widen them
  // into the ring. Products are f16's then.
  static constexpr bool kFp8 = kSizes.code_stages > 0;
  static constexpr int kCodeStages = kFp8 ? kSizes.code_stages : 1;
  static constexpr int kCodeBytes = kFp8 ? kKeys * kHeadDim : 128;  // of a block
  static constexpr int kWideners = 3;                               // warps
  // f16 loses precision below 2^-14: weights are at most 2^15, not 1.
  static constexpr int kHeadroom = kFp8 ? 15 : 0;
  template <int kN>
  using Wgmma = std::conditional_t<kFp8, WgmmaF16<kN>, WgmmaBf16<kN>>;
  // A thread's; together no more than the block is launched with. Widening wants more than asking
  // for copies, but of three warpgroups with 128 keys none can spare it.
  static constexpr bool kSpare = kFp8 && !(kConsumers == 3 && kKeys == 128);
  static constexpr int kProducerRegisters = kSpare ? 56 : kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = (kConsumers == 2 ? 232 : 160) - (kSpare ? 8 : 0);
  // Taking turns pays while a warpgroup's softmax is long beside its products.
  static constexpr bool kTurns = kHeadDim <= 128;

  struct Smem {
    alignas(1024) uint8_t q[kQBuffers][kSlabs * kQSlabBytes];
    alignas(1024) uint8_t ring[kStages][kBlockBytes];
    uint64_t q_full[kQBuffers], q_empty[kQBuffers];
    uint64_t full[kStages], empty[kStages];
    uint64_t patch;  // for a block of values whose end must be cleared before it is full
    alignas(128) uint8_t codes[kCodeStages][kCodeBytes];
    uint64_t codes_full[kCodeStages], codes_empty[kCodeStages];
    int32_t
        rows[kCodeStages];  // of a block of codes, before the sequence's end; -1: no more blocks
    Tile tile[kQBuffers];
  };
  static_assert(sizeof(Smem) + 1024 <= 227 * 1024, "more than a block's shared memory");
};

// A place in a ring of kCount buffers and the parity of its current use.
template <int kCount>
struct Cursor {
  int index = 0;
  uint32_t parity = 0;
  __device__ void Advance() {
    if (++index == kCount) {
      index = 0;
      parity ^= 1;
    }
  }
};

}  // namespace millrace::prefill

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_PREFILL_TRAITS_CUH_
