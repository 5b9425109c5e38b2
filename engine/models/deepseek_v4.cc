#include "engine/models/deepseek_v4.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/weights/deepseek_v4_tensors.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/latent_cache/hadamard_fp4.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/rope/rope_frequencies.h"

namespace millrace {
namespace {

absl::StatusOr<Weight> LoadFrequencies(const DeepSeekV4Config& config, const DeepSeekV4Rope& rope,
                                       LoadContext& ctx) {
  ASSIGN_OR_RETURN(
      const std::vector<float> inv_freq,
      RopeFrequencies({.type = rope.yarn ? RopeType::kYarn : RopeType::kDefault,
                       .dim = config.rope_dim,
                       .theta = rope.theta,
                       .factor = rope.factor,
                       .original_max_position = static_cast<int32_t>(rope.original_max_position),
                       .beta_fast = rope.beta_fast,
                       .beta_slow = rope.beta_slow}));
  return ctx.weights.Upload(inv_freq);
}

HyperConnectionConfig ConnectionConfig(const DeepSeekV4Config& config) {
  return {.hidden_size = config.hidden_size,
          .streams = config.hc_streams,
          .norm_eps = static_cast<float>(config.rms_norm_eps),
          .hc_eps = static_cast<float>(config.hc_eps),
          .sinkhorn_iters = config.hc_sinkhorn_iters};
}

LatentAttentionConfig AttentionConfig(const DeepSeekV4Config& config, int32_t index,
                                      const ModelPlacement& placement) {
  const DeepSeekV4Attention kind = config.layers[static_cast<size_t>(index)].attention;
  LatentAttentionConfig attention = {.hidden_size = config.hidden_size,
                                     .num_heads = config.num_heads,
                                     .head_dim = config.head_dim,
                                     .q_rank = config.q_lora_rank,
                                     .o_groups = config.o_groups,
                                     .o_rank = config.o_lora_rank,
                                     .window = config.sliding_window,
                                     .compress_ratio = CompressRatio(kind),
                                     .norm_eps = config.rms_norm_eps,
                                     .kv_dtype = placement.kv_dtype,
                                     .cache_layer = index};
  if (kind == DeepSeekV4Attention::kCsa) {
    attention.index = {.heads = config.index_heads,
                       .head_dim = config.index_head_dim,
                       .topk = config.index_topk,
                       .hadamard_fp4 = placement.numerics == Numerics::kServing};
  }
  return attention;
}

MoeConfig MixtureConfig(const DeepSeekV4Config& config, int32_t index) {
  const DeepSeekV4Router router = config.layers[static_cast<size_t>(index)].router;
  return {.hidden_size = config.hidden_size,
          .width = config.expert_width,
          .num_experts = config.num_experts,
          .chosen = config.experts_per_token,
          .scaling = static_cast<float>(config.routed_scaling),
          .limit = static_cast<float>(config.swiglu_limit),
          .hash_ids = router == DeepSeekV4Router::kHash ? config.vocab_size : 0};
}

bool HasFp8Rows(const DeepSeekV4Config& config) {
  return config.head_dim == kFp8LatentDim && config.rope_dim == kFp8LatentRopeDim;
}

absl::Status CheckPlacement(const DeepSeekV4Config& config, const ModelPlacement& placement,
                            const LoadContext& ctx) {
  if (placement.kv_dtype == DType::kU8 && !HasFp8Rows(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-cache-dtype fp8: its rows have ", kFp8LatentDim, " channels, ",
                     kFp8LatentRopeDim, " of them rotated, and the model's ", config.head_dim,
                     " and ", config.rope_dim, ": give bfloat16"));
  }
  if (placement.numerics == Numerics::kServing && !HadamardFp4Covers(config.index_head_dim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--numerics serving: index_head_dim ", config.index_head_dim,
                     " is no power of two from ", kHadamardFp4Block, ": give reference"));
  }
  // Its drafter has these layers' names and other tensors; config.json of a re-pack may not say so.
  if (ctx.weights.source().Find("mtp.0.main_proj.weight").ok()) {
    return absl::UnimplementedError(
        "the checkpoint is a DSpark re-pack (it has mtp.0.main_proj.weight), which is not "
        "supported; use a checkpoint without");
  }
  return absl::OkStatus();
}

}  // namespace

DType DeepSeekV4Model::ServedCacheDType(const DeepSeekV4Config& config, DType weight_dtype) {
  return HasFp8Rows(config) ? DType::kU8 : weight_dtype;
}

absl::StatusOr<DeepSeekV4Model::Layer> DeepSeekV4Model::LoadLayer(const DeepSeekV4Config& config,
                                                                  int32_t index,
                                                                  const ModelPlacement& placement,
                                                                  LoadContext& ctx) const {
  const std::string prefix = absl::StrCat("layers.", index);
  const HyperConnectionConfig connection = ConnectionConfig(config);
  const LatentAttentionConfig attention_config = AttentionConfig(config, index, placement);
  const int64_t hidden = config.hidden_size;
  const double eps = config.rms_norm_eps;
  ASSIGN_OR_RETURN(HyperConnectionLayer attention_connection,
                   HyperConnectionLayer::Load(connection, prefix + ".hc_attn", ctx));
  ASSIGN_OR_RETURN(NormLayer attention_norm,
                   NormLayer::Load(prefix + ".attn_norm.weight", hidden, eps, ctx));
  ASSIGN_OR_RETURN(LatentAttentionLayer attention,
                   LatentAttentionLayer::Load(attention_config, prefix + ".attn", ctx));
  ASSIGN_OR_RETURN(HyperConnectionLayer moe_connection,
                   HyperConnectionLayer::Load(connection, prefix + ".hc_ffn", ctx));
  ASSIGN_OR_RETURN(NormLayer moe_norm,
                   NormLayer::Load(prefix + ".ffn_norm.weight", hidden, eps, ctx));
  ASSIGN_OR_RETURN(MoeLayer moe,
                   MoeLayer::Load(MixtureConfig(config, index), prefix + ".ffn", ctx));
  return Layer{
      .inv_freq = attention_config.compress_ratio > 0 ? &compress_inv_freq_ : &window_inv_freq_,
      .attention_connection = std::move(attention_connection),
      .attention_norm = std::move(attention_norm),
      .attention = std::move(attention),
      .moe_connection = std::move(moe_connection),
      .moe_norm = std::move(moe_norm),
      .moe = std::move(moe)};
}

absl::Status DeepSeekV4Model::LoadLayers(const DeepSeekV4Config& config,
                                         const ModelPlacement& placement, LoadContext& ctx) {
  for (int32_t i = 0; i < static_cast<int32_t>(config.layers.size()); ++i) {
    ASSIGN_OR_RETURN(Layer layer, LoadLayer(config, i, placement, ctx));
    cache_spec_.layers.push_back(layer.attention.cache_rows());
    cache_spec_.slot_layers.push_back(layer.attention.slot_stores());
    layers_.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> DeepSeekV4Model::Load(const ModelConfig& model_config,
                                                             const ModelPlacement& placement,
                                                             LoadContext& ctx) {
  MR_CHECK(model_config.deepseek_v4.has_value());
  const DeepSeekV4Config& config = *model_config.deepseek_v4;
  RETURN_IF_ERROR(CheckPlacement(config, placement, ctx));
  std::unique_ptr<DeepSeekV4Model> model(new DeepSeekV4Model());
  model->vocab_ = {.vocab_size = config.vocab_size, .hidden_size = config.hidden_size};
  model->streams_ = config.hc_streams;
  ASSIGN_OR_RETURN(model->window_inv_freq_, LoadFrequencies(config, config.window_rope, ctx));
  ASSIGN_OR_RETURN(model->compress_inv_freq_, LoadFrequencies(config, config.compress_rope, ctx));
  ASSIGN_OR_RETURN(model->embed_, VocabParallelEmbedding::Load(model->vocab_, "embed.weight", ctx));
  RETURN_IF_ERROR(model->LoadLayers(config, placement, ctx));
  ASSIGN_OR_RETURN(model->head_connection_,
                   HyperConnectionHeadLayer::Load(ConnectionConfig(config), "hc_head", ctx));
  ASSIGN_OR_RETURN(model->final_norm_,
                   NormLayer::Load("norm.weight", config.hidden_size, config.rms_norm_eps, ctx));
  ASSIGN_OR_RETURN(model->head_, LmHead::Load(model->vocab_, "head.weight", ctx));
  return std::unique_ptr<Model>(std::move(model));
}

bool DeepSeekV4Model::IsIgnorable(const ModelConfig&, const std::string& tensor) {
  return IsDeepSeekV4Mtp(tensor);
}

absl::Status DeepSeekV4Model::PlanAttention(const PagedAttentionTarget&, const ForwardBatch&,
                                            PagedAttentionPlan&) const {
  return absl::OkStatus();
}

int64_t DeepSeekV4Model::AttentionPlanBytes(const PagedAttentionTarget&, const LargestStep&) const {
  return 0;
}

absl::StatusOr<DeepSeekV4Model::Activations> DeepSeekV4Model::Take(WorkspaceScope& scope,
                                                                   const OpContext& op, DType dtype,
                                                                   int64_t tokens) const {
  Activations a;
  ASSIGN_OR_RETURN(const TensorView streams,
                   TakeActivation(scope, op, dtype, tokens, streams_ * hidden_size()));
  a.streams =
      TensorView::Of(streams.data, dtype, {tokens, streams_, hidden_size()}, op.device.type());
  ASSIGN_OR_RETURN(a.x, TakeActivation(scope, op, dtype, tokens, hidden_size()));
  ASSIGN_OR_RETURN(a.delta, TakeActivation(scope, op, dtype, tokens, hidden_size()));
  ASSIGN_OR_RETURN(a.mix, TakeHyperConnectionMix(scope, op, tokens, streams_));
  return a;
}

absl::Status DeepSeekV4Model::Forward(ForwardContext& ctx, const ForwardBatch& batch,
                                      const TensorView& hidden) const {
  const OpContext& op = ctx.op;
  WorkspaceScope scope(op.workspace);
  ASSIGN_OR_RETURN(const Activations a, Take(scope, op, hidden.dtype, batch.num_tokens()));
  RETURN_IF_ERROR(embed_.Forward(ctx, batch, a.x));
  RETURN_IF_ERROR(HyperConnectionBegin(op, {.x = a.x, .streams = a.streams}));
  for (const Layer& layer : layers_) {
    RETURN_IF_ERROR(layer.attention_connection.In(op, a.streams, a.x, a.mix));
    RETURN_IF_ERROR(layer.attention_norm.Forward(op, a.x, a.x));
    RETURN_IF_ERROR(layer.attention.Forward(ctx, batch, layer.inv_freq->view, a.x, a.delta));
    RETURN_IF_ERROR(layer.attention_connection.Out(op, a.delta, a.mix, a.streams));
    RETURN_IF_ERROR(layer.moe_connection.In(op, a.streams, a.x, a.mix));
    RETURN_IF_ERROR(layer.moe_norm.Forward(op, a.x, a.x));
    RETURN_IF_ERROR(layer.moe.Forward(ctx, batch, a.x, a.delta));
    RETURN_IF_ERROR(layer.moe_connection.Out(op, a.delta, a.mix, a.streams));
  }
  RETURN_IF_ERROR(head_connection_.Forward(op, a.streams, a.x));
  return final_norm_.Forward(op, a.x, hidden);
}

absl::Status DeepSeekV4Model::Logits(ForwardContext& ctx, const TensorView& hidden,
                                     const TensorView& logits) const {
  return head_.Forward(ctx, hidden, logits);
}

int64_t DeepSeekV4Model::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  int64_t inner = 0;
  for (const Layer& layer : layers_) {
    inner = std::max({inner, layer.attention.WorkspaceBytes(device, limits),
                      layer.attention_connection.WorkspaceBytes(device, limits.tokens),
                      layer.moe.WorkspaceBytes(device, limits)});
  }
  const int64_t outer = ActivationBytes(dtype, limits.tokens, streams_ * hidden_size()) +
                        2 * ActivationBytes(dtype, limits.tokens, hidden_size()) +
                        HyperConnectionMixBytes(limits.tokens, streams_);
  return std::max(outer + inner, head_.WorkspaceBytes(device, limits));
}

}  // namespace millrace
