// Which compressed entries a token attends to: those whose index keys score highest.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

struct IndexSelectArgs {
  TensorView q;        // [T, N, D] f32 or bf16, rotated; tokens and heads may be padded
  TensorView weights;  // [T, N] f32 or bf16, one a head; rows may be padded
  // [pages, 1, page_tokens / ratio, D] f32 or bf16: the key of entry s is row
  // s % (page_tokens / ratio) of the sequence's page s * ratio / page_tokens.
  TensorView keys;
  PagedBatch batch;
  TensorView selected;  // [T, K] i32, K >= 1
  int64_t ratio = 0;    // tokens of an entry
  float scale = 0;      // multiplies the weights
  // Serving numerics: every head of q goes through ApplyHadamardFp4
  // (kernels/latent_cache/hadamard_fp4.h) first. The keys have been by KvCompress.
  bool hadamard_fp4 = false;
};

// The token at position p sees the v = (p + 1) / ratio entries whose windows are full by then:
//   score[s] = sum_n max(0, q[t, n] . keys[s]) * weights[t, n] * scale        in f32
//   selected[t] = the min(K, v) entries of the highest scores, in rising order, then -1.
// Equal scores go to the lower entry; NaN counts as the lowest score. Rows of `selected` that
// belong to no sequence are not written.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for lengths or pages out
// of range (a GPU sees no entries beyond the page table, and scores those of other pages lowest);
// Unimplemented where the device has no kernel; ResourceExhausted when the workspace is
// smaller than IndexSelectWorkspaceBytes(). A token's result depends on that token alone, bit for
// bit. Worker thread.
absl::Status IndexSelect(const OpContext& ctx, const IndexSelectArgs& args);

// Workspace that suffices for N heads of D channels and sequences of up to max_entries entries
// (max_pages * page_tokens / ratio).
int64_t IndexSelectWorkspaceBytes(Device& device, int64_t heads, int64_t dim, int64_t max_entries);

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_H_
