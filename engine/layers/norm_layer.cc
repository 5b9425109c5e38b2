#include "engine/layers/norm_layer.h"

#include "kernels/all_reduce/all_reduce.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize.h"

namespace millrace {

absl::StatusOr<NormLayer> NormLayer::Load(const std::string& name, int64_t size, double eps,
                                          LoadContext& ctx) {
  NormLayer layer;
  layer.eps_ = static_cast<float>(eps);
  ASSIGN_OR_RETURN(layer.weight_,
                   ctx.weights.Load(VectorPart(name, size, {0, size}), ctx.vector_dtype));
  return layer;
}

absl::Status NormLayer::Forward(const OpContext& op, const TensorView& x,
                                const TensorView& out) const {
  LinearInput plain = {.x = out};
  return Norm(op, x, std::nullopt, plain);
}

absl::Status NormLayer::Forward(const OpContext& op, const TensorView& x, LinearInput& out) const {
  return Norm(op, x, std::nullopt, out);
}

absl::Status NormLayer::SumAddForward(ForwardContext& ctx, const TensorView& delta,
                                      const TensorView& residual, LinearInput& out) const {
  const AllReducePeers* peers = ctx.comm.peers();
  if (peers != nullptr && AllReduceRmsNormCovers(*peers, delta.dim(0), delta.dim(1))) {
    return AllReduceRmsNorm(ctx.op, {.peers = *peers,
                                     .x = delta,
                                     .residual = residual,
                                     .weight = weight_.view,
                                     .y = out.x,
                                     .eps = eps_});
  }
  RETURN_IF_ERROR(ctx.comm.AllReduceSum(delta, ctx.op.stream));
  return Norm(ctx.op, delta, residual, out);
}

absl::Status NormLayer::Norm(const OpContext& op, const TensorView& x,
                             const std::optional<TensorView>& residual, LinearInput& out) const {
  if (!out.fp8.has_value()) {
    return RmsNorm(op,
                   {.x = x, .residual = residual, .weight = weight_.view, .y = out.x, .eps = eps_});
  }
  out.quantised = true;
  return RmsNormQuantize(op, {.x = x,
                              .residual = residual,
                              .weight = weight_.view,
                              .eps = eps_,
                              .codes = out.fp8->codes,
                              .scale = out.fp8->scale,
                              .unit = out.fp8->unit,
                              .rounding = out.fp8->rounding});
}

int64_t NormLayer::WorkspaceBytes(DType dtype, int64_t tokens, int64_t size) {
  return RmsNormQuantizeWorkspaceBytes(dtype, tokens, size);
}

}  // namespace millrace
