// A model on one rank, as the runtime sees it.
#ifndef ENGINE_MODELS_MODEL_H_
#define ENGINE_MODELS_MODEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/cache/cache_spec.h"
#include "engine/config/numerics.h"
#include "engine/layers/forward_context.h"
#include "kernels/core/dtype.h"

namespace millrace {

struct ModelPlacement {
  DType weight_dtype = DType::kBF16;  // f32 or bf16
  DType kv_dtype = DType::kBF16;      // f32, bf16, or u8 for FP8 rows
  Numerics numerics = Numerics::kReference;
  bool quantize = false;  // the linear layers of a LLaMA become FP8 as they are read
  bool expert_parallel = false;
  int32_t rank = 0;  // of the tensor-parallel group
  int32_t size = 1;
  int32_t world_rank = 0;  // of all ranks that step together
  int32_t world_size = 1;
};

// Immutable after load. Worker thread. All ranks of a group make the same calls with the same
// batch.
class Model {
 public:
  virtual ~Model() = default;

  // Plans the attention of a step, from the host's copy of its lengths. Before Forward, and before
  // each replay of a captured Forward. A model that plans nothing leaves the plan as it is.
  virtual absl::Status PlanAttention(const PagedAttentionTarget& target, const ForwardBatch& batch,
                                     PagedAttentionPlan& plan) const = 0;
  // Bytes of the written plan of any step within `limits`; 0 on the CPU.
  virtual int64_t AttentionPlanBytes(const PagedAttentionTarget& target,
                                     const LargestStep& limits) const = 0;

  // hidden[t]: the last layer's normalised output for token t; [T, hidden_size] of
  // ActivationDType(). Appends the batch to the cache.
  virtual absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch,
                               const TensorView& hidden) const = 0;

  // Whole rows of logits on every rank: hidden [R, hidden_size] -> logits [R, vocab_size] f32.
  virtual absl::Status Logits(ForwardContext& ctx, const TensorView& hidden,
                              const TensorView& logits) const = 0;

  virtual const CacheSpec& cache_spec() const = 0;
  virtual int64_t hidden_size() const = 0;
  virtual int64_t vocab_size() const = 0;
  // Workspace that Forward and Logits need at most, their ops' included.
  virtual int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const = 0;
};

}  // namespace millrace

#endif  // ENGINE_MODELS_MODEL_H_
