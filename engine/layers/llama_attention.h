// Grouped-query attention of LLaMA-class models, heads split over the ranks.
#ifndef ENGINE_LAYERS_LLAMA_ATTENTION_H_
#define ENGINE_LAYERS_LLAMA_ATTENTION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/cache_scales.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/weight_loader.h"
#include "kernels/core/dtype.h"

namespace millrace {

struct LlamaAttentionConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  bool bias = false;
  int32_t cache_layer = 0;        // whose stores of the cache are this layer's
  DType kv_dtype = DType::kBF16;  // of those: f32, bf16, or u8 for E4M3 codes
};

// Immutable after load.
class LlamaAttention final {
 public:
  // Weights q_proj, k_proj, v_proj and o_proj below `prefix` ("model.layers.0.self_attn"), and the
  // scales of an FP8 cache (cache_scales.h).
  static absl::StatusOr<LlamaAttention> Load(const LlamaAttentionConfig& config,
                                             const std::string& prefix, LoadContext& ctx);

  // This rank's heads. What ctx.attention_plan must be made for.
  const PagedAttentionShape& shape() const { return shape_; }

  // out = this rank's part of o_proj(attention(rope(qkv_proj(x)))), which the norm that follows
  // sums over the ranks; in is of input_weight() and out [T, hidden]. Appends the step's keys and
  // values to the cache. inv_freq: [head_dim / 2] f32.
  absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& inv_freq,
                       const LinearInput& in, const TensorView& out) const;
  // What x meets.
  const LinearWeight& input_weight() const { return qkv_proj_.weight(); }

  // Workspace bytes that Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  LlamaAttention() = default;

  int32_t cache_layer_ = 0;
  PagedAttentionShape shape_;
  float scale_ = 0;
  ColumnParallelLinear qkv_proj_;  // rows of q, then k, then v
  RowParallelLinear o_proj_;
  CacheScales cache_scales_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_LLAMA_ATTENTION_H_
