#include "engine/layers/hyper_connection_layer.h"

#include "kernels/core/status.h"
#include "kernels/hyper_connection/hyper_connection.h"

namespace millrace {
namespace {

struct MixWeights {
  Weight fn, base, scale;
};

absl::StatusOr<MixWeights> LoadMix(const HyperConnectionConfig& config, const std::string& prefix,
                                   int64_t rows, int64_t scales, LoadContext& ctx) {
  const int64_t inputs = config.streams * config.hidden_size;
  MixWeights weights;
  ASSIGN_OR_RETURN(
      weights.fn, ctx.weights.Load(MatrixPart(prefix + "_fn", rows, inputs, {0, rows}, {0, inputs}),
                                   DType::kF32));
  ASSIGN_OR_RETURN(weights.base,
                   ctx.weights.Load(VectorPart(prefix + "_base", rows, {0, rows}), DType::kF32));
  ASSIGN_OR_RETURN(
      weights.scale,
      ctx.weights.Load(VectorPart(prefix + "_scale", scales, {0, scales}), DType::kF32));
  return weights;
}

}  // namespace

absl::StatusOr<HyperConnectionMix> TakeHyperConnectionMix(WorkspaceScope& scope,
                                                          const OpContext& op, int64_t tokens,
                                                          int64_t streams) {
  HyperConnectionMix mix;
  ASSIGN_OR_RETURN(mix.post, TakeActivation(scope, op, DType::kF32, tokens, streams));
  ASSIGN_OR_RETURN(const TensorView comb,
                   TakeActivation(scope, op, DType::kF32, tokens, streams * streams));
  mix.comb = TensorView::Of(comb.data, DType::kF32, {tokens, streams, streams}, op.device.type());
  return mix;
}

int64_t HyperConnectionMixBytes(int64_t tokens, int64_t streams) {
  return ActivationBytes(DType::kF32, tokens, streams) +
         ActivationBytes(DType::kF32, tokens, streams * streams);
}

absl::StatusOr<HyperConnectionLayer> HyperConnectionLayer::Load(const HyperConnectionConfig& config,
                                                                const std::string& prefix,
                                                                LoadContext& ctx) {
  const int64_t s = config.streams;
  HyperConnectionLayer layer;
  layer.config_ = config;
  ASSIGN_OR_RETURN(MixWeights weights, LoadMix(config, prefix, (2 + s) * s, 3, ctx));
  layer.fn_ = std::move(weights.fn);
  layer.base_ = std::move(weights.base);
  layer.scale_ = std::move(weights.scale);
  return layer;
}

absl::Status HyperConnectionLayer::In(const OpContext& op, const TensorView& streams,
                                      const TensorView& x, const HyperConnectionMix& mix) const {
  return HyperConnectionIn(op, {.streams = streams,
                                .fn = fn_.view,
                                .base = base_.view,
                                .scale = scale_.view,
                                .x = x,
                                .post = mix.post,
                                .comb = mix.comb,
                                .norm_eps = config_.norm_eps,
                                .hc_eps = config_.hc_eps,
                                .sinkhorn_iters = config_.sinkhorn_iters});
}

absl::Status HyperConnectionLayer::Out(const OpContext& op, const TensorView& out,
                                       const HyperConnectionMix& mix,
                                       const TensorView& streams) const {
  return HyperConnectionOut(op,
                            {.out = out, .post = mix.post, .comb = mix.comb, .streams = streams});
}

int64_t HyperConnectionLayer::WorkspaceBytes(Device& device, int64_t max_tokens) const {
  return HyperConnectionWorkspaceBytes(device, max_tokens, config_.streams, config_.hidden_size);
}

absl::StatusOr<HyperConnectionHeadLayer> HyperConnectionHeadLayer::Load(
    const HyperConnectionConfig& config, const std::string& prefix, LoadContext& ctx) {
  HyperConnectionHeadLayer layer;
  layer.config_ = config;
  ASSIGN_OR_RETURN(MixWeights weights, LoadMix(config, prefix, config.streams, 1, ctx));
  layer.fn_ = std::move(weights.fn);
  layer.base_ = std::move(weights.base);
  layer.scale_ = std::move(weights.scale);
  return layer;
}

absl::Status HyperConnectionHeadLayer::Forward(const OpContext& op, const TensorView& streams,
                                               const TensorView& y) const {
  return HyperConnectionHead(op, {.streams = streams,
                                  .fn = fn_.view,
                                  .base = base_.view,
                                  .scale = scale_.view,
                                  .y = y,
                                  .norm_eps = config_.norm_eps,
                                  .hc_eps = config_.hc_eps});
}

}  // namespace millrace
