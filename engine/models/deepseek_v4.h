// DeepSeek-V4, Flash and Pro: hyper-connected streams, latent attention over a window and
// compressed rows, a mixture of experts.
#ifndef ENGINE_MODELS_DEEPSEEK_V4_H_
#define ENGINE_MODELS_DEEPSEEK_V4_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/model_config.h"
#include "engine/layers/hyper_connection_layer.h"
#include "engine/layers/latent_attention_layer.h"
#include "engine/layers/moe_layer.h"
#include "engine/layers/norm_layer.h"
#include "engine/layers/vocab_parallel.h"
#include "engine/models/model.h"

namespace millrace {

class DeepSeekV4Model final : public Model {
 public:
  // REQUIRES: config.deepseek_v4. InvalidArgument when the model cannot be cut into ctx.size ranks
  // or has no such cache rows; Unimplemented for a checkpoint of another kind of drafter (DSpark);
  // else what the loader reports.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const ModelConfig& config,
                                                     const ModelPlacement& placement,
                                                     LoadContext& ctx);
  // Of cache rows in serving numerics, where nobody asks for another type.
  static DType ServedCacheDType(const DeepSeekV4Config& config, DType weight_dtype);
  // The layers that predict further tokens: not run.
  static bool IsIgnorable(const ModelConfig& config, const std::string& tensor);

  // Nothing to plan: the ops read the batch on the device.
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
    const Weight* inv_freq;  // one of the model's
    HyperConnectionLayer attention_connection;
    NormLayer attention_norm;
    LatentAttentionLayer attention;
    HyperConnectionLayer moe_connection;
    NormLayer moe_norm;
    MoeLayer moe;
  };
  // A step's activations.
  struct Activations {
    TensorView streams;  // [T, S, hidden]
    TensorView x;        // [T, hidden]: a sublayer's input
    TensorView delta;    // [T, hidden]: its output
    HyperConnectionMix mix;
  };

  DeepSeekV4Model() = default;
  absl::Status LoadLayers(const DeepSeekV4Config& config, const ModelPlacement& placement,
                          LoadContext& ctx);
  absl::StatusOr<Layer> LoadLayer(const DeepSeekV4Config& config, int32_t index,
                                  const ModelPlacement& placement, LoadContext& ctx) const;
  absl::StatusOr<Activations> Take(WorkspaceScope& scope, const OpContext& op, DType dtype,
                                   int64_t tokens) const;

  VocabConfig vocab_;
  int64_t streams_ = 0;
  CacheSpec cache_spec_;
  Weight window_inv_freq_;    // [rope_dim / 2] f32: of layers with window rows alone
  Weight compress_inv_freq_;  // of all others
  VocabParallelEmbedding embed_;
  std::vector<Layer> layers_;
  HyperConnectionHeadLayer head_connection_;
  NormLayer final_norm_;
  LmHead head_;
};

}  // namespace millrace

#endif  // ENGINE_MODELS_DEEPSEEK_V4_H_
