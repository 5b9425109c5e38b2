// LLaMA-class models: LLaMA 2 and 3, TinyLlama, SmolLM2, Mistral without sliding window.
#ifndef ENGINE_MODELS_LLAMA_H_
#define ENGINE_MODELS_LLAMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/model_config.h"
#include "engine/layers/llama_attention.h"
#include "engine/layers/llama_mlp.h"
#include "engine/layers/norm_layer.h"
#include "engine/layers/vocab_parallel.h"
#include "engine/models/model.h"

namespace millrace {

class LlamaModel final : public Model {
 public:
  // InvalidArgument when the model cannot be cut into ctx.size ranks, or has no experts to place;
  // else what the loader reports.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const ModelConfig& config,
                                                     const ModelPlacement& placement,
                                                     LoadContext& ctx);
  // Tensors that old checkpoints hold and nobody needs, and scales of a cache that is not FP8.
  static bool IsIgnorable(const ModelConfig& config, const std::string& tensor);

  absl::Status PlanAttention(const PagedAttentionTarget& target, const ForwardBatch& batch,
                             PagedAttentionPlan& plan) const override;
  int64_t AttentionPlanBytes(const PagedAttentionTarget& target,
                             const LargestStep& limits) const override;
  absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch,
                       const TensorView& hidden) const override;
  absl::Status Logits(ForwardContext& ctx, const TensorView& hidden,
                      const TensorView& logits) const override;

  const CacheSpec& cache_spec() const override { return cache_spec_; }
  int64_t hidden_size() const override { return vocab_.hidden_size; }
  int64_t vocab_size() const override { return vocab_.vocab_size; }
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const override;

 private:
  struct Layer {
    NormLayer input_norm;
    LlamaAttention attention;
    NormLayer post_attention_norm;
    LlamaMlp mlp;
  };

  LlamaModel() = default;
  static absl::StatusOr<Layer> LoadLayer(const ModelConfig& config, int32_t index, DType kv_dtype,
                                         LoadContext& ctx);

  // Workspace for the codes of a layer's input.
  int64_t InputBytes(int64_t tokens) const;

  VocabConfig vocab_;
  bool has_fp8_ = false;  // some weights may be FP8
  CacheSpec cache_spec_;
  Weight inv_freq_;  // [head_dim / 2] f32
  VocabParallelEmbedding embed_tokens_;
  std::vector<Layer> layers_;
  NormLayer final_norm_;
  LmHead lm_head_;
};

}  // namespace millrace

#endif  // ENGINE_MODELS_LLAMA_H_
