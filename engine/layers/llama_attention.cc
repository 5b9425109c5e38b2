#include "engine/layers/llama_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/layers/fp8_weight.h"
#include "engine/layers/head_view.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "kernels/rope_append/rope_append.h"

namespace millrace {
namespace {

Range TimesHeadDim(Range heads, int64_t head_dim) {
  return {heads.begin * head_dim, heads.end * head_dim};
}

// Heads [begin, end) of rows that hold heads side by side: [T, N * D] -> [T, end - begin, D].
TensorView Heads(const TensorView& rows, int64_t begin, int64_t end, int64_t head_dim) {
  return HeadView(rows.Cols(begin * head_dim, end * head_dim), head_dim);
}

}  // namespace

absl::StatusOr<LlamaAttention> LlamaAttention::Load(const LlamaAttentionConfig& config,
                                                    const std::string& prefix, LoadContext& ctx) {
  ASSIGN_OR_RETURN(const HeadShard heads,
                   ShardHeads(config.num_heads, config.num_kv_heads, ctx.size, ctx.rank));
  const int64_t d = config.head_dim;
  const int64_t q_outputs = config.num_heads * d;
  const int64_t kv_outputs = config.num_kv_heads * d;
  const Range q = TimesHeadDim(heads.q, d);
  const Range kv = TimesHeadDim(heads.kv, d);
  const ColumnParallelLinear::Projection qkv[] = {{prefix + ".q_proj", q_outputs, q},
                                                  {prefix + ".k_proj", kv_outputs, kv},
                                                  {prefix + ".v_proj", kv_outputs, kv}};
  LlamaAttention layer;
  layer.cache_layer_ = config.cache_layer;
  layer.shape_ = {.q_heads = static_cast<int32_t>(heads.q.size()),
                  .kv_heads = static_cast<int32_t>(heads.kv.size()),
                  .head_dim = static_cast<int32_t>(d)};
  layer.scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
  const std::string inner[] = {qkv[0].prefix, qkv[1].prefix, qkv[2].prefix};
  ASSIGN_OR_RETURN(const LinearPlan qkv_plan, PlanLinear(inner, ctx));
  ASSIGN_OR_RETURN(layer.qkv_proj_,
                   ColumnParallelLinear::Load(qkv, config.hidden_size, config.bias, qkv_plan, ctx));
  const std::string outer = prefix + ".o_proj";
  ASSIGN_OR_RETURN(const LinearPlan o_plan, PlanLinear({&outer, 1}, ctx));
  ASSIGN_OR_RETURN(layer.o_proj_, RowParallelLinear::Load({outer, config.hidden_size, q_outputs, q},
                                                          config.bias, o_plan, ctx));
  if (config.kv_dtype == DType::kU8) {
    ASSIGN_OR_RETURN(layer.cache_scales_,
                     LoadCacheScales(prefix, heads.kv, config.num_kv_heads, ctx));
  }
  return layer;
}

absl::Status LlamaAttention::Forward(ForwardContext& ctx, const ForwardBatch& batch,
                                     const TensorView& inv_freq, const LinearInput& in,
                                     const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  const int64_t tokens = batch.num_tokens();
  const DType dtype = in.x.dtype;
  const int64_t d = shape_.head_dim;
  const int64_t nq = shape_.q_heads;
  const int64_t nkv = shape_.kv_heads;
  ASSIGN_OR_RETURN(const TensorView qkv,
                   TakeActivation(scope, ctx.op, dtype, tokens, qkv_proj_.outputs()));
  ASSIGN_OR_RETURN(const TensorView attended, TakeActivation(scope, ctx.op, dtype, tokens, nq * d));
  RETURN_IF_ERROR(qkv_proj_.Forward(ctx.op, in, qkv));
  const TensorView q = Heads(qkv, 0, nq, d);
  const TensorView& k_cache = ctx.cache.store(cache_layer_, kKeyStore);
  const TensorView& v_cache = ctx.cache.store(cache_layer_, kValueStore);
  RETURN_IF_ERROR(RopeAppend(ctx.op, {.q = q,
                                      .k = Heads(qkv, nq, nq + nkv, d),
                                      .v = Heads(qkv, nq + nkv, nq + 2 * nkv, d),
                                      .positions = batch.positions,
                                      .inv_freq = inv_freq,
                                      .slots = batch.cache_slots,
                                      .k_cache = k_cache,
                                      .v_cache = v_cache,
                                      .k_scale = cache_scales_.k.view,
                                      .v_scale = cache_scales_.v.view}));
  RETURN_IF_ERROR(PagedAttention(ctx.op, ctx.attention_plan,
                                 {.q = q,
                                  .k_cache = k_cache,
                                  .v_cache = v_cache,
                                  .page_table = batch.page_table,
                                  .q_start = batch.q_start,
                                  .kv_len = batch.kv_len,
                                  .out = Heads(attended, 0, nq, d),
                                  .scale = scale_,
                                  .plan_data = batch.attention_plan_data,
                                  .k_scale = cache_scales_.k.view,
                                  .v_scale = cache_scales_.v.view}));
  ASSIGN_OR_RETURN(const LinearInput o_in, o_proj_.weight().TakeInput(scope, attended));
  return o_proj_.PartialForward(ctx.op, o_in, out);
}

int64_t LlamaAttention::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  const int64_t q_width = int64_t{shape_.q_heads} * shape_.head_dim;
  const int64_t linear = std::max(qkv_proj_.weight().WorkspaceBytes(device, limits.tokens),
                                  o_proj_.weight().WorkspaceBytes(device, limits.tokens));
  const int64_t attention =
      PagedAttentionWorkspaceBytes(device, shape_, limits.sequences, limits.tokens);
  return ActivationBytes(dtype, limits.tokens, qkv_proj_.outputs()) +
         ActivationBytes(dtype, limits.tokens, q_width) + std::max(linear, attention);
}

}  // namespace millrace
