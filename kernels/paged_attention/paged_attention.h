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
#include "kernels/paged_attention/paged_attention_prefill_work.h"
#include "kernels/paged_attention/paged_attention_work.h"

namespace millrace {

// What all layers of a model share.
struct PagedAttentionShape {
  int32_t q_heads = 0;
  int32_t kv_heads = 0;  // divides q_heads; query head h reads kv head h / (q_heads / kv_heads),
                         // which at most 64 query heads share
  int32_t head_dim = 0;  // a multiple of 8, 8 to 256
};

// What a plan must know of the device that runs it.
struct PagedAttentionTarget {
  DeviceType device = DeviceType::kCpu;
  int32_t multiprocessors = 0;     // CUDA
  int32_t compute_capability = 0;  // CUDA: 90 for sm_90
};

// Asks the device, which is slow: once, not once a step.
absl::StatusOr<PagedAttentionTarget> PagedAttentionTargetOf(const Device& device);

// On CUDA, sequences with at most this many new tokens in a step are decoded: their keys are split
// over the multiprocessors, and graphs of such steps can be captured.
inline constexpr int32_t kPagedAttentionDecodeQueries = 16;

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
// Reuse keeps the vectors' memory.
struct PagedAttentionPlan {
  PagedAttentionShape shape;
  PagedAttentionTarget target;
  std::vector<int32_t> q_start;
  std::vector<int32_t> kv_len;

  // CPU. How a sequence is cut depends on its own lengths only, never on its neighbours or the
  // number of threads, so a sequence's result is the same in any batch.
  std::vector<PagedAttentionItem> items;  // most expensive first
  std::vector<PagedAttentionJoin> joins;
  int64_t partial_rows = 0;  // rows of partial results, per kv head

  // CUDA, read on the device from plan_data. How a sequence is cut may depend on the others: the
  // work is spread evenly over the multiprocessors. The same step gives the same bits each time.
  int32_t decode_queries = 0;              // most new tokens of a sequence that is decoded
  std::vector<PagedAttentionWork> decode;  // most expensive first, and so the next
  std::vector<PagedAttentionWork> prefill;
  std::vector<PagedPrefillTile> hopper;  // the prefill work once more, for sm_90's own kernel
  PagedAttentionPlanLayout layout;       // of plan_data
};

// Fills `plan` for B sequences: sequence b has queries [q_start[b], q_start[b + 1]) of the step's
// tokens, which are the last of its kv_len[b] tokens. A sequence without queries costs nothing.
// InvalidArgument when q_start does not rise from 0, a sequence has more queries than tokens, or
// the shape is not one that the op takes. Any thread.
absl::Status PlanPagedAttention(const PagedAttentionShape& shape,
                                const PagedAttentionTarget& target,
                                absl::Span<const int32_t> q_start, absl::Span<const int32_t> kv_len,
                                PagedAttentionPlan& plan);

// Bytes of plan_data that suffice for every plan of at most this size; 0 on the CPU. `max_tokens`
// counts the step's new tokens.
int64_t PagedAttentionPlanBytes(const PagedAttentionTarget& target,
                                const PagedAttentionShape& shape, int64_t max_sequences,
                                int64_t max_tokens);

// Writes what plan_data must hold, plan.layout.bytes of it, to host memory at `to` (aligned to 16
// bytes). Any thread.
void WritePagedAttentionPlan(const PagedAttentionPlan& plan, char* to);

struct PagedAttentionArgs {
  TensorView q;  // [T, q_heads, D] f32 or bf16; tokens and heads may be padded
  // [pages, kv_heads, page_tokens, D] f32, bf16, or u8 for E4M3 codes; any strides but the last
  TensorView k_cache;
  TensorView v_cache;     // like k_cache; both hold the step's own tokens already
  TensorView page_table;  // [B, max_pages] i32: pages of a sequence in order, -1 past the last
  TensorView q_start;     // [B + 1] i32: as planned, on the device
  TensorView kv_len;      // [B] i32: as planned, on the device
  TensorView out;         // [T, q_heads, D], dtype of q; tokens and heads may be padded
  float scale = 0;        // multiplies q.k before the softmax
  TensorView
      plan_data;  // [at least plan.layout.bytes] u8, 16-byte aligned: the written plan on the
                  // device. The op counts in it and leaves it as it was. Unused on the CPU
  // [kv_heads] f32 above 0, of a cache of codes alone: what 1 in the cache stands for. On CUDA
  // written ahead of the last kernel before this one that is not early (kernels/ptx, the PDL rule).
  TensorView k_scale;
  TensorView v_scale;  // like k_scale
};

// The query t of sequence b's n sits at position p = kv_len - n + t and sees keys 0..p:
//   out[t, h] = softmax(scale * q[t, h] . k[0..p]) v[0..p]        with f32 arithmetic;
// on CUDA with bf16 queries and cache the weights are rounded to bf16 before they meet the values,
// with bf16 queries and codes to f16, and queries beyond f16's 65504 count as that. A code stands
// for its value times its head's scale.
// Cache rows past kv_len never matter. NaN in a value of a later token may reach the queries before
// it in the same step and sequence, never another sequence. Rows of `out` that belong to no
// sequence of the plan (padding of a captured batch) are not written.
//
// Captured graphs. The lengths are read on the device from plan_data, never from the plan. So a
// launch captured with a plan without prefill work serves every later plan without prefill work of
// the same shape, target and number of sequences whose decode_queries is the same or 0: write the
// new plan into the same plan_data before each replay. Give padding sequences no queries and
// kv_len 0 (q_start stays flat); the captured call itself sees all of its padded tokens.
//
// On CUDA, cache rows of earlier steps may be read before the launch ahead of this one has ended
// (kernels/ptx/README.md): only rows of this step's own tokens may be written by that launch.
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
