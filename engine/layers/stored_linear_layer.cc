#include "engine/layers/stored_linear_layer.h"

#include "kernels/core/status.h"
#include "kernels/stored_linear/stored_linear.h"

namespace millrace {

absl::StatusOr<StoredLinearLayer> StoredLinearLayer::Load(const StoredPart& part,
                                                          LoadContext& ctx) {
  StoredLinearLayer layer;
  ASSIGN_OR_RETURN(layer.weight_, LoadStored(part, ctx.weights));
  if (IsQuantised(layer.weight_.matrix.format)) layer.rounding_ = ctx.rounding;
  return layer;
}

absl::Status StoredLinearLayer::Forward(const OpContext& op, const TensorView& x,
                                        const TensorView& y) const {
  return StoredLinear(op, {.x = x, .weight = weight_.matrix, .y = y, .rounding = rounding_});
}

absl::Status StoredLinearLayer::ForwardRows(const OpContext& op, Range rows, const TensorView& x,
                                            const TensorView& y) const {
  return StoredLinear(
      op,
      {.x = x, .weight = weight_.matrix.Rows(rows.begin, rows.end), .y = y, .rounding = rounding_});
}

int64_t StoredLinearLayer::WorkspaceBytes(Device& device) const {
  return StoredLinearWorkspaceBytes(device, inputs());
}

absl::StatusOr<StoredRowParallelLinear> StoredRowParallelLinear::Load(const StoredPart& part,
                                                                      LoadContext& ctx) {
  StoredRowParallelLinear layer;
  ASSIGN_OR_RETURN(layer.linear_, StoredLinearLayer::Load(part, ctx));
  return layer;
}

absl::Status StoredRowParallelLinear::Forward(ForwardContext& ctx, const TensorView& x,
                                              const TensorView& y) const {
  RETURN_IF_ERROR(linear_.Forward(ctx.op, x, y));
  return ctx.comm.AllReduceSum(y, ctx.op.stream);
}

}  // namespace millrace
