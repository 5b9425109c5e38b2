// What the kernels of IndexSelect share.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_CUH_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/index_select/index_select_kernel.h"

namespace millrace {

// A token of the step.
struct IndexToken {
  int32_t sequence;  // args.sequences: none
  int32_t visible;   // entries that it sees

  // All lanes of a warp call this together.
  __device__ __forceinline__ IndexToken(const IndexSelectKernelArgs& args, int token)
      : sequence(0), visible(0) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    // q_start never falls: the sequences that end before the token are those ahead of its own.
    for (int begin = 0; begin < args.sequences; begin += 32) {
      const int b = begin + lane;
      const bool ends = b < args.sequences && args.q_start[b + 1] <= token;
      sequence += __popc(__ballot_sync(0xffffffffu, ends));
    }
    if (!IsIn(args)) return;
    const int position = args.kv_len[sequence] - args.q_start[sequence + 1] + token;
    visible = min(max(position + 1, 0) / args.ratio, args.entry_room);
  }

  __device__ __forceinline__ bool IsIn(const IndexSelectKernelArgs& args) const {
    return sequence < args.sequences;
  }
  __device__ __forceinline__ bool NeedsScores(const IndexSelectKernelArgs& args) const {
    return visible > args.chosen;
  }
};

// The offset of an entry's key, -1 where its page is none.
__device__ __forceinline__ int64_t KeyOffset(const IndexSelectKernelArgs& args, int sequence,
                                             int entry) {
  const int page_index = entry / args.page_entries;
  const int page = args.page_table[sequence * args.table_stride + page_index];
  if (page < 0 || page >= args.pages) return -1;
  return page * args.page_stride + (entry - page_index * args.page_entries) * args.key_stride;
}

__device__ __forceinline__ float ElementAt(const void* from, bool bf16, int64_t i) {
  return bf16 ? __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i])
              : static_cast<const float*>(from)[i];
}

// NaN stays.
__device__ __forceinline__ float Relu(float x) { return x < 0.0f ? 0.0f : x; }

constexpr uint32_t kLowestOrder = 0x007fffff;  // of -infinity

// Integers in the order of scores: -0 is 0, NaN the lowest.
__device__ __forceinline__ uint32_t OrderOf(float score) {
  if (isnan(score)) return kLowestOrder;
  if (score == 0.0f) return 0x80000000u;
  const uint32_t bits = __float_as_uint(score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_KERNEL_CUH_
