// Causal attention over a paged cache, for prefill, chunked prefill and decode in one batch.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_H_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/device.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// What all layers of a model share.
struct PagedAttentionShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // divides q_heads; query head h reads kv head h / (q_heads / kv_heads),
                         // which at most 64 query heads share
  int32_t head_dim = 0;  // a multiple of 8, 8 to 256
};

// One tile of queries against one range of keys, for every kv head.
struct PagedAttentionItem {
  int32_t sequence = 0;
  int32_t q_begin = 0, q_end = 0;    // queries of the sequence, 0 = its first new token
  int32_t kv_begin = 0, kv_end = 0;  // keys of the sequence
  int64_t partial_row = -1;  // first row of its partial result; -1: writes the output itself
};

// A tile whose keys were split into parts, joined after the items.
struct PagedAttentionJoin {
  int32_t sequence = 0;
  int32_t queries = 0;  // all of the sequence's
  int32_t splits = 0;
  int64_t partial_row = 0;  // of the first split; queries * (q_heads / kv_heads) rows each
};

// The work of one step, computed once from the host's copy of the lengths and used by every layer.
// How a sequence is cut depends on its own lengths only, never on its neighbours or the number of
// threads, so a sequence's result is the same in any batch. Reuse keeps the vectors' memory.
struct PagedAttentionPlan {
  PagedAttentionShape shape;
  std::vector<int32_t> q_start;
  std::vector<int32_t> kv_len;
  std::vector<PagedAttentionItem> items;  // most expensive first
  std::vector<PagedAttentionJoin> joins;
  int64_t partial_rows = 0;  // rows of partial results, per kv head
};

// Fills `plan` for B sequences: sequence b has queries [q_start[b], q_start[b + 1]) of the step's
// tokens, which are the last of its kv_len[b] tokens. InvalidArgument when q_start does not rise
// from 0, a sequence has more queries than tokens, or the shape is not one that the op takes. Any
// thread.
absl::Status PlanPagedAttention(const PagedAttentionShape& shape, absl::Span<const int32_t> q_start,
                                absl::Span<const int32_t> kv_len, PagedAttentionPlan& plan);

struct PagedAttentionArgs {
  TensorView q;           // [T, q_heads, D] f32 or bf16; tokens and heads may be padded
  TensorView k_cache;     // [pages, kv_heads, page_tokens, D] f32 or bf16; any strides but the last
  TensorView v_cache;     // like k_cache; both hold the step's own tokens already
  TensorView page_table;  // [B, max_pages] i32: pages of a sequence in order, -1 past the last
  TensorView q_start;     // [B + 1] i32: as planned, on the device
  TensorView kv_len;      // [B] i32: as planned, on the device
  TensorView out;         // [T, q_heads, D], dtype of q; tokens and heads may be padded
  float scale = 0;        // multiplies q.k before the softmax
};

// The query t of sequence b's n sits at position p = kv_len - n + t and sees keys 0..p:
//   out[t, h] = softmax(scale * q[t, h] . k[0..p]) v[0..p]        with f32 arithmetic.
// Cache rows past kv_len are never read. NaN in a value of a later token may reach the queries
// before it in the same step and sequence, never another sequence.
//
// InvalidArgument for operands that do not fit together or the plan and, on the CPU, for lengths
// that differ from the plan's and for pages outside the cache; Unimplemented where the device has
// no kernel; ResourceExhausted when the workspace is smaller than PagedAttentionWorkspaceBytes().
// Worker thread.
absl::Status PagedAttention(const OpContext& ctx, const PagedAttentionPlan& plan,
                            const PagedAttentionArgs& args);

// Workspace that suffices for every plan of at most this size on `device`.
int64_t PagedAttentionWorkspaceBytes(Device& device, const PagedAttentionShape& shape,
                                     int64_t max_sequences, int64_t max_tokens);

}  // namespace millrace

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_H_
