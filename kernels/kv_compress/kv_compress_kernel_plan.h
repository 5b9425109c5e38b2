// How blocks share a compressor's entries. For the host and for nvcc.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_

#include <cstdint>

namespace millrace {

inline constexpr int kCompressThreads = 256;  // of a block, at most
inline constexpr int kCompressMaxDim = 1024;
inline constexpr int kCompressMaxSlices = 8;  // a cluster has no more everywhere
inline constexpr int kCompressChunk = 4;      // tokens of one window
inline constexpr int kCompressChunks = 2;     // that a thread has in registers at a time

// Depends on the shape alone, and with it the order of all sums: a sequence's rows are the same
// however it is cut into steps.
struct KvCompressPlan {
  int32_t slices = 1;  // blocks of a cluster, each with its channels of an entry
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

// The entries beyond the first ones of their sequences that a step can complete at most.
constexpr int32_t MaxInnerEntries(int32_t tokens, int32_t ratio, int32_t first_entries) {
  const int32_t inner = (tokens - 1) / ratio - (first_entries - 1);
  return inner > 0 ? inner : 0;
}

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_KERNEL_PLAN_H_
