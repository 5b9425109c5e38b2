// What flows through the layers in one step.
#ifndef ENGINE_LAYERS_FORWARD_CONTEXT_H_
#define ENGINE_LAYERS_FORWARD_CONTEXT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/cache/kv_cache.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/op_context.h"
#include "kernels/paged_attention/paged_attention.h"

namespace millrace {

// T tokens of B sequences, decode and prefill mixed, each sequence's tokens in a row. The tensors
// are on the device.
struct ForwardBatch {
  TensorView token_ids;    // [T] i32
  TensorView positions;    // [T] i32
  TensorView cache_slots;  // [T] i64: page * page_tokens + offset
  TensorView page_table;   // [B, P] i32, -1 past the last page
  TensorView q_start;      // [B + 1] i32
  TensorView kv_len;       // [B] i32, this step's tokens included
  TensorView state_slots;  // [B] i32: row of the cache's slot stores; -1 for a padded sequence
  // The written plan of attention (WritePagedAttentionPlan); empty on the CPU.
  TensorView attention_plan_data;
  // [slots] i32: what the negative ids of token_ids stand for (EmbeddingArgs).
  TensorView last_tokens;
  // The host's copy, for plans.
  absl::Span<const int32_t> host_q_start;
  absl::Span<const int32_t> host_kv_len;

  int64_t num_tokens() const { return token_ids.dim(0); }
};

// Worker thread. Borrows; all outlive the call.
struct ForwardContext {
  const OpContext& op;
  Communicator& comm;  // of the ranks that share the batch
  const KvCache& cache;
  const PagedAttentionPlan& attention_plan;  // of Model::PlanAttention for the batch
  Communicator* world = nullptr;  // of the ranks of all batches; null where that is `comm`
};

// The largest step that a model must have workspace for.
struct LargestStep {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t logit_rows = 0;       // of one call to Logits
  int64_t sequence_tokens = 0;  // that the pages of one sequence have room for
};

// A dense [rows, cols] activation of `dtype` from the workspace.
absl::StatusOr<TensorView> TakeActivation(WorkspaceScope& scope, const OpContext& op, DType dtype,
                                          int64_t rows, int64_t cols);

// Workspace bytes of such an activation.
int64_t ActivationBytes(DType dtype, int64_t rows, int64_t cols);

// What layers compute in on a device: f32 on the CPU, where it is the fastest too.
DType ActivationDType(DeviceType device);

}  // namespace millrace

#endif  // ENGINE_LAYERS_FORWARD_CONTEXT_H_
