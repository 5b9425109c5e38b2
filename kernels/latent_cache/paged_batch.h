// The sequences of a step, as the ops of the latent cache see them.
#ifndef KERNELS_LATENT_CACHE_PAGED_BATCH_H_
#define KERNELS_LATENT_CACHE_PAGED_BATCH_H_

#include <cstdint>

#include "kernels/core/shape_checker.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// B sequences, each with a run of the step's T tokens: tokens [q_start[b], q_start[b + 1]) are the
// last of its kv_len[b], so token t sits at position kv_len[b] - q_start[b + 1] + t. All three are
// read on the device, so that a captured graph can be replayed: padding sequences have no tokens
// (q_start stays flat), and tokens from q_start[B] on belong to no sequence.
struct PagedBatch {
  TensorView q_start;     // [B + 1] i32
  TensorView kv_len;      // [B] i32, this step's tokens included
  TensorView page_table;  // [B, max_pages] i32: pages of a sequence in order, -1 past the last
};

// Checks shapes and types.
void CheckPagedBatch(ShapeChecker& checker, const PagedBatch& batch);

}  // namespace millrace

#endif  // KERNELS_LATENT_CACHE_PAGED_BATCH_H_
