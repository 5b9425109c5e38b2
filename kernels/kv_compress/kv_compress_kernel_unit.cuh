// What a block of kv_compress works on: sequences, the entries of a unit, and where the tokens of
// an entry are.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_UNIT_CUH_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_UNIT_CUH_

#include <cstdint>

#include "kernels/kv_compress/kv_compress_kernel.h"
#include "kernels/latent_cache/latent_store.cuh"
#include "kernels/ptx/load.cuh"

namespace millrace {

__device__ __forceinline__ int Ratio(const KvCompressKernelArgs& args) {
  return static_cast<int>(args.ratio.by);
}

__device__ __forceinline__ int Run(const KvCompressKernelArgs& args) {
  return static_cast<int>(args.run.by);
}

__device__ __forceinline__ bool Overlaps(const KvCompressKernelArgs& args) {
  return args.carry != nullptr;
}

// What the host wrote, by a load that stays where it stands: all of a sequence's at once.
__device__ __forceinline__ int LoadCount(const int32_t* from) {
  uint32_t word;
  LoadStreamWords<1>(from, &word);
  return static_cast<int>(word);
}

// The part of a sequence that the step brings: positions [first, end). Empty for padding.
struct CompressSequence {
  int32_t first = 0;
  int32_t end = 0;
  int32_t token_of_zero = 0;  // the token at position 0, were it in the step
  int32_t slot = 0;
  int32_t index = 0;

  CompressSequence() = default;
  __device__ __forceinline__ CompressSequence(const KvCompressKernelArgs& args, int b) : index(b) {
    const int begin_token = LoadCount(args.q_start + b);
    const int end_token = LoadCount(args.q_start + b + 1);
    const int length = LoadCount(args.kv_len + b);
    slot = LoadCount(args.state_slots + b);
    // Without branches, so that no load waits for another.
    const bool some = (begin_token >= 0) & (begin_token < end_token) & (end_token <= args.tokens) &
                      (length >= end_token - begin_token) & (slot >= 0) & (slot < args.slots);
    if (!some) return;
    end = length;
    first = length - (end_token - begin_token);
    token_of_zero = end_token - length;
  }

  // That of another lane of the warp.
  __device__ __forceinline__ CompressSequence OfLane(int lane) const {
    constexpr uint32_t kAll = 0xffffffffu;
    CompressSequence other;
    other.first = __shfl_sync(kAll, first, lane);
    other.end = __shfl_sync(kAll, end, lane);
    other.token_of_zero = __shfl_sync(kAll, token_of_zero, lane);
    other.slot = __shfl_sync(kAll, slot, lane);
    other.index = __shfl_sync(kAll, index, lane);
    return other;
  }
};

// Entries [begin, end) of a sequence. A sequence's first unit has those that need its state, at
// most two, and then keeps, for no other block reads what that overwrites. Each further entry is a
// unit.
struct CompressUnit {
  CompressSequence sequence;
  int32_t begin = 0;
  int32_t end = 0;
};

__device__ __forceinline__ int UnitOfBlock(const KvCompressKernelArgs& args) {
  return static_cast<int>(blockIdx.x >> args.plan.slice_shift);
}

// Whether the unit is the first one of a sequence, as units [0, sequences) are.
__device__ __forceinline__ bool Keeps(const KvCompressKernelArgs& args) {
  return UnitOfBlock(args) < args.sequences;
}

// The first entry of a sequence in the step that needs nothing of its state: with overlap an entry
// needs the window before, which for the first of a block is in the carry.
__device__ __forceinline__ int FirstInnerEntry(const KvCompressKernelArgs& args,
                                               const CompressSequence& sequence) {
  const int entry = args.ratio.Quotient(sequence.first);
  const bool begins = entry * Ratio(args) == sequence.first;
  if (!Overlaps(args)) return begins ? entry : entry + 1;
  if (!begins) return entry + 2;
  return args.block_windows.Remainder(entry) == 0 ? entry : entry + 1;
}

// The run `index` of the step's inner entries. Whole warps, each for itself.
__device__ __forceinline__ CompressUnit FindInnerUnit(const KvCompressKernelArgs& args, int index) {
  constexpr uint32_t kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int base = 0; base < args.sequences; base += 32) {
    CompressSequence sequence;
    if (base + lane < args.sequences) sequence = CompressSequence(args, base + lane);
    const int begin = FirstInnerEntry(args, sequence);
    const int entries_end = args.ratio.Quotient(sequence.end);
    const int count = args.run.Quotient(max(entries_end - begin, 0) + Run(args) - 1);
    int end = count;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int before = __shfl_up_sync(kAll, end, d);
      if (lane >= d) end += before;
    }
    const uint32_t here = __ballot_sync(kAll, index < end && index >= end - count);
    if (here != 0) {
      const int owner = __ffs(static_cast<int>(here)) - 1;
      const int entry = __shfl_sync(kAll, begin + (index - (end - count)) * Run(args), owner);
      return {sequence.OfLane(owner), entry,
              min(entry + Run(args), __shfl_sync(kAll, entries_end, owner))};
    }
    index -= __shfl_sync(kAll, end, 31);
  }
  return {};
}

__device__ __forceinline__ CompressUnit FindUnit(const KvCompressKernelArgs& args) {
  const int unit = UnitOfBlock(args);
  if (!Keeps(args)) return FindInnerUnit(args, unit - args.sequences);
  const CompressSequence sequence(args, unit);
  const int begin = args.ratio.Quotient(sequence.first);
  const int end = min(args.ratio.Quotient(sequence.end), FirstInnerEntry(args, sequence));
  return {sequence, begin, end};
}

// The row of an entry, and with it the page of its window; none past the page table.
__device__ __forceinline__ LatentPlace PlaceOf(const KvCompressKernelArgs& args,
                                               const CompressSequence& sequence, int entry) {
  const int page = args.page_rows.Quotient(entry);
  if (page >= args.max_pages) return {};
  return {.page = args.page_table[int64_t{sequence.index} * args.table_stride + page],
          .row = entry - page * args.store.page_rows};
}

// Where the kv and the score + ape of one token are kept, from channel 0 on.
struct KeptRow {
  float* kv = nullptr;
  float* score = nullptr;
};

// Token i of a window.
__device__ __forceinline__ KeptRow StateRow(const KvCompressKernelArgs& args,
                                            const CompressSequence& sequence, int window, int i) {
  const int halves = Overlaps(args) ? 2 : 1;
  const int projected = halves * args.dim;
  const int rows = halves * Ratio(args);
  const int row = (window & (halves - 1)) * Ratio(args) + i;
  float* const kv = args.state + int64_t{sequence.slot * rows + row} * (2 * projected);
  return {kv, kv + projected};
}

// Likewise of a block's last window, at `place`.
__device__ __forceinline__ KeptRow CarryRow(const KvCompressKernelArgs& args, LatentPlace place,
                                            int i) {
  float* const kv = args.carry + place.page * args.carry_page_stride +
                    args.block_windows.Quotient(place.row) * args.carry_block_stride +
                    i * 2 * args.dim;
  return {kv, kv + args.dim};
}

// An entry of a sequence, where it goes, and where what it needs of the block before is kept: none
// where it is not the first of its block.
struct CompressEntry {
  CompressSequence sequence;
  int index;
  LatentPlace place;
  bool is_first_of_block;
  LatentPlace carried;

  __device__ __forceinline__ CompressEntry(const KvCompressKernelArgs& args,
                                           const CompressSequence& s, int entry)
      : sequence(s), index(entry), place(PlaceOf(args, s, entry)) {
    is_first_of_block = Overlaps(args) && args.block_windows.Remainder(entry) == 0;
    if (is_first_of_block && entry > 0) carried = PlaceOf(args, s, entry - 1);
  }
};

// At most kCompressChunk consecutive tokens of one window of an entry, from one channel on. The
// chunks of an entry are those of the window before, with overlap, then those of its own.
struct TokenChunk {
  // The first `kept` tokens, in state or carry.
  const float* kept_kv = nullptr;
  int kept_score = 0;  // from kept_kv on
  int kept_stride = 0;
  int kept = 0;
  // All, those of earlier steps too, were they in the step.
  const float* kv = nullptr;
  const float* score = nullptr;
  int ape = 0;  // element of args.ape
  int count = 0;

  __device__ __forceinline__ TokenChunk(const KvCompressKernelArgs& args,
                                        const CompressEntry& entry, int chunk, int channel) {
    const int chunks = ChunksOfWindow(Ratio(args));
    const bool earlier = Overlaps(args) && chunk < chunks;
    if (Overlaps(args) && !earlier) {
      chunk -= chunks;
      channel += args.dim;
    }
    const int window = earlier ? entry.index - 1 : entry.index;
    const int first = chunk * kCompressChunk;
    const int position = window * Ratio(args) + first;
    count = window < 0 ? 0 : max(min(kCompressChunk, Ratio(args) - first), 0);
    const int t = entry.sequence.token_of_zero + position;
    kv = args.kv + int64_t{t} * args.kv_stride + channel;
    score = args.score + int64_t{t} * args.score_stride + channel;
    ape = first * args.ape_stride + channel;
    kept = min(max(entry.sequence.first - position, 0), count);
    if (kept == 0) return;
    KeptRow row = StateRow(args, entry.sequence, window, first);
    kept_stride = 2 * (Overlaps(args) ? 2 : 1) * args.dim;
    if (earlier && entry.is_first_of_block) {
      row = CarryRow(args, entry.carried, first);
      kept_stride = 2 * args.dim;
      if (!entry.carried.IsIn(args.store)) count = kept = 0;
    }
    kept_kv = row.kv + channel;
    kept_score = static_cast<int>(row.score - row.kv);
  }

  // Whether all its tokens are there, and in the step.
  __device__ __forceinline__ bool plain() const { return kept == 0 && count == kCompressChunk; }

  __device__ __forceinline__ const float* Kv(const KvCompressKernelArgs& args, int k) const {
    return k < kept ? kept_kv + k * kept_stride : kv + k * args.kv_stride;
  }
  __device__ __forceinline__ const float* Score(const KvCompressKernelArgs& args, int k) const {
    return k < kept ? kept_kv + kept_score + k * kept_stride : score + k * args.score_stride;
  }
};

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_UNIT_CUH_
