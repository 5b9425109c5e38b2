#include "engine/layers/moe_layer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/layers/stored_weight.h"
#include "engine/parallel/shard.h"
#include "kernels/add/add.h"
#include "kernels/core/status.h"
#include "kernels/moe_route/moe_route.h"

namespace millrace {

absl::StatusOr<MoeLayer> MoeLayer::Load(const MoeConfig& config, const std::string& prefix,
                                        LoadContext& ctx) {
  MoeLayer layer;
  layer.config_ = config;
  RETURN_IF_ERROR(layer.LoadRouter(prefix + ".gate", ctx));
  RETURN_IF_ERROR(layer.LoadExperts(prefix + ".experts", ctx));
  const std::string shared = prefix + ".shared_experts";
  ASSIGN_OR_RETURN(const Range part,
                   CutColumns(shared + ".w2", config.hidden_size, config.width, ctx));
  ASSIGN_OR_RETURN(layer.shared_, StoredMlp::Load({.hidden_size = config.hidden_size,
                                                   .width = config.width,
                                                   .part = part,
                                                   .limit = config.limit},
                                                  shared, ctx));
  return layer;
}

absl::Status MoeLayer::LoadRouter(const std::string& prefix, LoadContext& ctx) {
  const int64_t experts = config_.num_experts;
  ASSIGN_OR_RETURN(gate_,
                   StoredLinearLayer::Load(WholeMatrix(prefix, experts, config_.hidden_size), ctx));
  if (config_.hash_ids > 0) {
    ASSIGN_OR_RETURN(table_, ctx.weights.Load(IndexPart(prefix + ".tid2eid", config_.hash_ids,
                                                        config_.chosen, experts),
                                              DType::kI32));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      bias_, ctx.weights.Load(VectorPart(prefix + ".bias", experts, {0, experts}), DType::kF32));
  return absl::OkStatus();
}

absl::Status MoeLayer::LoadExperts(const std::string& prefix, LoadContext& ctx) {
  StoredExpertsConfig config = {.hidden_size = config_.hidden_size,
                                .width = config_.width,
                                .chosen = config_.chosen,
                                .num_experts = config_.num_experts,
                                .experts = {0, config_.num_experts},
                                .part = {0, config_.width},
                                .limit = config_.limit};
  if (!ctx.expert_parallel) {
    ASSIGN_OR_RETURN(config.part,
                     CutColumns(prefix + ".0.w2", config_.hidden_size, config_.width, ctx));
  } else if (config_.num_experts < ctx.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": ", config_.num_experts,
                                                   " experts for ", ctx.world_size,
                                                   " ranks (--enable-expert-parallel)"));
  } else {
    config.experts = BalancedRange(config_.num_experts, ctx.world_size, ctx.world_rank);
  }
  if (ctx.expert_parallel && ctx.world_size > ctx.size) {
    exchange_.emplace(ExpertExchangeConfig{.hidden_size = config_.hidden_size,
                                           .num_experts = config_.num_experts,
                                           .chosen = config_.chosen,
                                           .tensor_rank = ctx.rank,
                                           .tensor_size = ctx.size,
                                           .world_size = ctx.world_size});
  }
  ASSIGN_OR_RETURN(experts_, StoredExperts::Load(config, prefix, ctx));
  return absl::OkStatus();
}

absl::Status MoeLayer::Route(const OpContext& op, const ForwardBatch& batch, const TensorView& x,
                             const Routes& routes) const {
  WorkspaceScope scope(op.workspace);
  ASSIGN_OR_RETURN(const TensorView logits,
                   TakeActivation(scope, op, DType::kF32, x.dim(0), config_.num_experts));
  RETURN_IF_ERROR(gate_.Forward(op, x, logits));
  if (config_.hash_ids > 0) {
    return MoeRouteByHash(op, {.logits = logits,
                               .ids = batch.token_ids,
                               .last_tokens = batch.last_tokens,
                               .table = table_.view,
                               .experts = routes.experts,
                               .weights = routes.weights,
                               .scaling = config_.scaling});
  }
  return MoeRouteByScore(op, {.logits = logits,
                              .bias = bias_.view,
                              .experts = routes.experts,
                              .weights = routes.weights,
                              .scaling = config_.scaling});
}

absl::Status MoeLayer::AddRouted(ForwardContext& ctx, const TensorView& x, const Routes& routes,
                                 const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  const Range tokens = exchange_.has_value() ? exchange_->OwnTokens(x.dim(0)) : Range{0, x.dim(0)};
  ASSIGN_OR_RETURN(const TensorView routed,
                   TakeActivation(scope, ctx.op, DType::kF32, tokens.size(), config_.hidden_size));
  if (exchange_.has_value()) {
    RETURN_IF_ERROR(exchange_->Forward(ctx, {x, routes.experts, routes.weights}, experts_, routed));
  } else {
    RETURN_IF_ERROR(experts_.Forward(ctx.op, x, routes.experts, routes.weights, routed));
  }
  const TensorView sum = out.Rows(tokens.begin, tokens.end);
  return Add(ctx.op, {.a = routed, .b = sum, .y = sum});
}

absl::Status MoeLayer::Forward(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& x,
                               const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  const int64_t tokens = batch.num_tokens();
  Routes routes;
  ASSIGN_OR_RETURN(routes.experts,
                   TakeActivation(scope, ctx.op, DType::kI32, tokens, config_.chosen));
  ASSIGN_OR_RETURN(routes.weights,
                   TakeActivation(scope, ctx.op, DType::kF32, tokens, config_.chosen));
  RETURN_IF_ERROR(Route(ctx.op, batch, x, routes));
  RETURN_IF_ERROR(shared_.Forward(ctx.op, x, out));
  RETURN_IF_ERROR(AddRouted(ctx, x, routes, out));
  return ctx.comm.AllReduceSum(out, ctx.op.stream);
}

int64_t MoeLayer::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const int64_t t = limits.tokens;
  const int64_t router =
      ActivationBytes(DType::kF32, t, config_.num_experts) + gate_.WorkspaceBytes(device);
  const int64_t experts = exchange_.has_value()
                              ? exchange_->WorkspaceBytes(device, limits, experts_)
                              : experts_.WorkspaceBytes(device);
  return 2 * ActivationBytes(DType::kF32, t, config_.chosen) +
         ActivationBytes(DType::kF32, t, config_.hidden_size) +
         std::max({router, experts, shared_.WorkspaceBytes(device, limits)});
}

}  // namespace millrace
