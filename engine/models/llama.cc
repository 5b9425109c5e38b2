#include "engine/models/llama.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/layers/cache_scales.h"
#include "engine/layers/fp8_linear.h"
#include "engine/layers/parallel_linear.h"
#include "kernels/core/status.h"
#include "kernels/rope/rope_frequencies.h"

namespace millrace {
namespace {

RopeType RopeTypeOf(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kDefault:
      return RopeType::kDefault;
    case RopeScaling::kLinear:
      return RopeType::kLinear;
    case RopeScaling::kLlama3:
      return RopeType::kLlama3;
  }
  return RopeType::kDefault;
}

absl::StatusOr<Weight> LoadFrequencies(const ModelConfig& config, LoadContext& ctx) {
  ASSIGN_OR_RETURN(std::vector<float> inv_freq,
                   RopeFrequencies({.type = RopeTypeOf(config.rope.type),
                                    .dim = config.head_dim,
                                    .theta = config.rope.theta,
                                    .factor = config.rope.factor,
                                    .low_freq_factor = config.rope.low_freq_factor,
                                    .high_freq_factor = config.rope.high_freq_factor,
                                    .original_max_position =
                                        static_cast<int32_t>(config.rope.original_max_position)}));
  if (config.rope.frequency_dtype == DType::kBF16) {
    for (float& f : inv_freq) f = ToFloat(ToBFloat16(f));
  }
  return ctx.weights.Upload(inv_freq);
}

}  // namespace

absl::StatusOr<LlamaModel::Layer> LlamaModel::LoadLayer(const ModelConfig& config, int32_t index,
                                                        DType kv_dtype, LoadContext& ctx) {
  const std::string prefix = absl::StrCat("model.layers.", index);
  const double eps = config.rms_norm_eps;
  const int64_t hidden = config.hidden_size;
  ASSIGN_OR_RETURN(NormLayer input_norm,
                   NormLayer::Load(prefix + ".input_layernorm.weight", hidden, eps, ctx));
  ASSIGN_OR_RETURN(LlamaAttention attention,
                   LlamaAttention::Load({.hidden_size = hidden,
                                         .num_heads = config.num_heads,
                                         .num_kv_heads = config.num_kv_heads,
                                         .head_dim = config.head_dim,
                                         .bias = config.attention_bias,
                                         .cache_layer = index,
                                         .kv_dtype = kv_dtype},
                                        prefix + ".self_attn", ctx));
  ASSIGN_OR_RETURN(NormLayer post_norm,
                   NormLayer::Load(prefix + ".post_attention_layernorm.weight", hidden, eps, ctx));
  ASSIGN_OR_RETURN(LlamaMlp mlp, LlamaMlp::Load({.hidden_size = hidden,
                                                 .intermediate_size = config.intermediate_size,
                                                 .bias = config.mlp_bias},
                                                prefix + ".mlp", ctx));
  return Layer{std::move(input_norm), std::move(attention), std::move(post_norm), std::move(mlp)};
}

absl::StatusOr<std::unique_ptr<Model>> LlamaModel::Load(const ModelConfig& config,
                                                        const ModelPlacement& placement,
                                                        LoadContext& ctx) {
  if (placement.expert_parallel) {
    return absl::InvalidArgumentError("--enable-expert-parallel: this model has no experts");
  }
  std::unique_ptr<LlamaModel> model(new LlamaModel());
  model->has_fp8_ = ctx.fp8 != nullptr || ctx.quantize;
  model->vocab_ = {.vocab_size = config.vocab_size, .hidden_size = config.hidden_size};
  ASSIGN_OR_RETURN(model->inv_freq_, LoadFrequencies(config, ctx));
  ASSIGN_OR_RETURN(model->embed_tokens_,
                   VocabParallelEmbedding::Load(model->vocab_, "model.embed_tokens.weight", ctx));
  for (int32_t i = 0; i < config.num_layers; ++i) {
    ASSIGN_OR_RETURN(Layer layer, LoadLayer(config, i, placement.kv_dtype, ctx));
    model->cache_spec_.layers.push_back(
        KeyValueLayer(layer.attention.shape().kv_heads, config.head_dim, placement.kv_dtype));
    model->layers_.push_back(std::move(layer));
  }
  ASSIGN_OR_RETURN(model->final_norm_, NormLayer::Load("model.norm.weight", config.hidden_size,
                                                       config.rms_norm_eps, ctx));
  if (config.tie_embeddings) {
    model->lm_head_ = LmHead::Tied(model->vocab_, model->embed_tokens_, ctx);
  } else {
    ASSIGN_OR_RETURN(model->lm_head_, LmHead::Load(model->vocab_, "lm_head.weight", ctx));
  }
  return std::unique_ptr<Model>(std::move(model));
}

bool LlamaModel::IsIgnorable(const ModelConfig& config, const std::string& tensor) {
  const std::string_view name = tensor;
  return name.ends_with(".rotary_emb.inv_freq") || IsCacheScale(tensor) ||
         (config.tie_embeddings && name == "lm_head.weight");
}

absl::Status LlamaModel::PlanAttention(const PagedAttentionTarget& target,
                                       const ForwardBatch& batch, PagedAttentionPlan& plan) const {
  return PlanPagedAttention(layers_[0].attention.shape(), target, batch.host_q_start,
                            batch.host_kv_len, plan);
}

int64_t LlamaModel::AttentionPlanBytes(const PagedAttentionTarget& target,
                                       const LargestStep& limits) const {
  return PagedAttentionPlanBytes(target, layers_[0].attention.shape(), limits.sequences,
                                 limits.tokens);
}

absl::Status LlamaModel::Forward(ForwardContext& ctx, const ForwardBatch& batch,
                                 const TensorView& hidden) const {
  WorkspaceScope scope(ctx.op.workspace);
  const int64_t tokens = batch.num_tokens();
  ASSIGN_OR_RETURN(const TensorView residual,
                   TakeActivation(scope, ctx.op, hidden.dtype, tokens, hidden_size()));
  ASSIGN_OR_RETURN(const TensorView delta,
                   TakeActivation(scope, ctx.op, hidden.dtype, tokens, hidden_size()));

  // What a norm leaves: `hidden`, or where it goes into FP8 weights codes.
  const int64_t code_bytes = InputBytes(tokens);
  ASSIGN_OR_RETURN(void* const code_memory, scope.Take(code_bytes));
  const auto input_of = [&](const LinearWeight& weight) {
    Workspace codes(code_memory, code_bytes);
    WorkspaceScope all(codes);
    return weight.TakeInput(all, hidden);
  };

  RETURN_IF_ERROR(embed_tokens_.Forward(ctx, batch, residual));
  ASSIGN_OR_RETURN(LinearInput in, input_of(layers_[0].attention.input_weight()));
  RETURN_IF_ERROR(layers_[0].input_norm.Forward(ctx.op, residual, in));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    RETURN_IF_ERROR(layer.attention.Forward(ctx, batch, inv_freq_.view, in, delta));
    ASSIGN_OR_RETURN(in, input_of(layer.mlp.input_weight()));
    RETURN_IF_ERROR(layer.post_attention_norm.SumAddForward(ctx, delta, residual, in));
    RETURN_IF_ERROR(layer.mlp.Forward(ctx, in, delta));
    if (i + 1 == layers_.size()) break;
    ASSIGN_OR_RETURN(in, input_of(layers_[i + 1].attention.input_weight()));
    RETURN_IF_ERROR(layers_[i + 1].input_norm.SumAddForward(ctx, delta, residual, in));
  }
  LinearInput last = {.x = hidden};
  return final_norm_.SumAddForward(ctx, delta, residual, last);
}

int64_t LlamaModel::InputBytes(int64_t tokens) const {
  return has_fp8_ ? Fp8Linear::InputBytes(tokens, hidden_size()) : 0;
}

absl::Status LlamaModel::Logits(ForwardContext& ctx, const TensorView& hidden,
                                const TensorView& logits) const {
  return lm_head_.Forward(ctx, hidden, logits);
}

int64_t LlamaModel::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  int64_t inner = NormLayer::WorkspaceBytes(dtype, limits.tokens, hidden_size());
  for (const Layer& layer : layers_) {  // some may be FP8
    inner = std::max({inner, layer.attention.WorkspaceBytes(device, limits),
                      layer.mlp.WorkspaceBytes(device, limits)});
  }
  const int64_t outer =
      2 * ActivationBytes(dtype, limits.tokens, hidden_size()) + InputBytes(limits.tokens);
  return std::max(outer + inner, lm_head_.WorkspaceBytes(device, limits));
}

}  // namespace millrace
