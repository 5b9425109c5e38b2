// How blocks share a compressor's entries. For the host and for nvcc.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_

#include <cstdint>

namespace millrace {

inline constexpr int kCompressThreads = 256;   // of a block, at most
inline constexpr int kCompressResident = 512;  // threads of a multiprocessor
inline constexpr int kCompressMaxDim = 1024;
inline constexpr int kCompressMaxSlices = 8;  // a cluster has no more everywhere
inline constexpr int kCompressChunk = 4;      // tokens of one window
inline constexpr int kCompressChunks = 2;     // that a thread has in registers at a time

// Quotients of counts by a number that the host knows: nvcc's division takes ten times as long.
struct CompressDivisor {
  uint32_t by = 1;
  uint32_t factor = 0;
  uint32_t shift = 31;

  constexpr CompressDivisor() = default;
  // REQUIRES: divisor > 0.
  constexpr explicit CompressDivisor(int32_t divisor) : by(static_cast<uint32_t>(divisor)) {
    // 2^shift / by, rounded up, of 32 bits. What n times that is too large by is less than n /
    // 2^31, and with it less than one, of 1 / by: never the next quotient.
    while ((uint64_t{1} << (shift - 31)) < by) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << shift) + by - 1) / by);
  }

  // REQUIRES: 0 <= n.
  constexpr int32_t Quotient(int32_t n) const {
    return static_cast<int32_t>(uint64_t{static_cast<uint32_t>(n)} * factor >> shift);
  }
  constexpr int32_t Remainder(int32_t n) const {
    return n - Quotient(n) * static_cast<int32_t>(by);
  }
};

// Depends on the shape alone, and with it the order of all sums: a sequence's rows are the same
// however it is cut into steps.
struct KvCompressPlan {
  int32_t slices = 1;  // blocks of a cluster, a power of two, each with channels of an entry
  int32_t slice_shift = 0;
  int32_t width = 0;   // channels of a slice
  int32_t lanes = 0;   // threads with four of them each
  int32_t groups = 0;  // of lanes, each with a part of the tokens
  int32_t threads = 0;
};

constexpr int32_t ChunksOfWindow(int32_t ratio) {
  return (ratio + kCompressChunk - 1) / kCompressChunk;
}

// Of entries that pool `windows` windows of `ratio` tokens. Slices, where they
// can be, are for long windows, whose tokens are too much memory for one block.
constexpr KvCompressPlan PlanKvCompress(int32_t ratio, int32_t windows, int32_t dim, bool sliced) {
  constexpr int32_t kLongWindow = 32;
  constexpr int32_t kSlice = 64;  // a group of FP8 codes
  KvCompressPlan plan;
  if (sliced && ratio >= kLongWindow) {
    while (plan.slices < kCompressMaxSlices && dim % (2 * plan.slices * kSlice) == 0) {
      plan.slices *= 2;
      ++plan.slice_shift;
    }
  }
  plan.width = dim / plan.slices;
  plan.lanes = plan.width / 4;
  const int32_t most = kCompressThreads / plan.lanes;
  const int32_t rounds = (windows * ChunksOfWindow(ratio) + kCompressChunks - 1) / kCompressChunks;
  plan.groups = most < rounds ? most : rounds;
  plan.threads = (plan.lanes * plan.groups + 31) / 32 * 32;
  return plan;
}

// Units of a step of so many tokens. A unit has a run of a sequence's entries that need no state:
// of many, so that all blocks are in place at once and find their sequence but once. Slices, whose
// barriers serve once an entry, have one.
struct KvCompressUnits {
  int32_t run = 1;
  int32_t count = 0;
};

constexpr KvCompressUnits PlanKvCompressUnits(const KvCompressPlan& plan, int32_t sequences,
                                              int32_t tokens, int32_t ratio,
                                              int32_t multiprocessors) {
  constexpr int32_t kMostRun = 8;
  // What 128 registers a thread leave room for.
  const int32_t resident = multiprocessors * (kCompressResident / plan.threads);
  const int32_t inner = tokens / ratio;  // at most: all tokens of their windows are in the step
  KvCompressUnits units;
  if (plan.slices == 1) {
    units.run = (inner + resident - 1) / resident;
    units.run = units.run < 1 ? 1 : units.run > kMostRun ? kMostRun : units.run;
  }
  // Every sequence may end in a part of a run.
  const int32_t parts = inner / units.run + (units.run > 1 ? sequences : 0);
  units.count = sequences + (parts < inner ? parts : inner);
  return units;
}

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_
