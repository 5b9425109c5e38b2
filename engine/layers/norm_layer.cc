#include "engine/layers/norm_layer.h"

#include "kernels/all_reduce/all_reduce.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm/rms_norm.h"

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
  RmsNormArgs args;
  args.x = x;
  args.weight = weight_.view;
  args.eps = eps_;
  args.y = out;
  return RmsNorm(op, args);
}

absl::Status NormLayer::SumAddForward(ForwardContext& ctx, const TensorView& delta,
                                      const TensorView& residual, const TensorView& out) const {
  const AllReducePeers* peers = ctx.comm.peers();
  if (peers != nullptr && AllReduceRmsNormCovers(*peers, delta.dim(0), delta.dim(1))) {
    return AllReduceRmsNorm(ctx.op, {.peers = *peers,
                                     .x = delta,
                                     .residual = residual,
                                     .weight = weight_.view,
                                     .y = out,
                                     .eps = eps_});
  }
  RETURN_IF_ERROR(ctx.comm.AllReduceSum(delta, ctx.op.stream));
  return RmsNorm(ctx.op,
                 {.x = delta, .residual = residual, .weight = weight_.view, .y = out, .eps = eps_});
}

}  // namespace millrace
