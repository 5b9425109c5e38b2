// The rows of PagedAttention's device table, and the limits its parts share.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_IMPL_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_IMPL_H_

#include "kernels/paged_attention/paged_attention.h"

namespace millrace {

inline constexpr int32_t kAttentionMaxHeadDim = 256;

// Query rows (tokens x query heads of one kv head) of a tile: enough that a block of keys is read
// from memory once for many rows, few enough that a tile's scores stay in the first-level cache.
inline constexpr int32_t kAttentionTileRows = 64;

// Keys of a block; splits begin at multiples of it.
inline constexpr int32_t kAttentionBlockKeys = 64;

// A lone tile's keys are split into parts of at least kAttentionMinSplitKeys: 256 keys of a 64-wide
// bf16 head are 64 KiB, some microseconds of work and well above the cost of joining. The number of
// parts, and of parts times rows, is bounded so that the partial results need little memory.
inline constexpr int32_t kAttentionMinSplitKeys = 256;
inline constexpr int32_t kAttentionMaxSplits = 16;
inline constexpr int32_t kAttentionMaxPartialRows = 128;

// CUDA: query rows of a tile. Up to kAttentionSmallTileRows a step's decode work goes to the kernel
// that keeps one warp's keys and values in registers; more rows to the one that shares them.
inline constexpr int32_t kAttentionSmallTileRows = 32;
inline constexpr int32_t kAttentionLargeTileRows = 64;

// Query rows of a decode tile, of which the partial results have as many.
int32_t PagedAttentionDecodeTileRows(const PagedAttentionShape& shape, int32_t decode_queries);
// Whether decode of so few sequences runs in one large block a multiprocessor rather than several.
bool PagedAttentionLargeBlocks(const PagedAttentionTarget& target, const PagedAttentionShape& shape,
                               int64_t sequences, int32_t tile_rows);
// Fills the CUDA part of `plan`, whose shape, target and lengths are set and right.
void PlanPagedAttentionCuda(PagedAttentionPlan& plan);
// Bytes of the partial results of any plan.
int64_t PagedAttentionCudaPartialBytes(const PagedAttentionTarget& target,
                                       const PagedAttentionShape& shape);

struct PagedAttentionCall {
  const PagedAttentionPlan& plan;
  const PagedAttentionArgs& args;
};

absl::Status PagedAttentionCpu(const OpContext& ctx, const PagedAttentionCall& call);
absl::Status PagedAttentionCuda(const OpContext& ctx, const PagedAttentionCall& call);
// Bytes of scratch of `threads` threads.
int64_t PagedAttentionCpuScratchBytes(const PagedAttentionShape& shape, int threads);
// Bytes of one row of partial results: f32 accumulators, maximum, sum.
int64_t PagedAttentionPartialRowBytes(const PagedAttentionShape& shape);

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_IMPL_H_
