#include "engine/layers/parallel_linear.h"

#include <optional>
#include <vector>

#include "kernels/core/status.h"
#include "kernels/linear/linear.h"

namespace millrace {
namespace {

std::optional<TensorView> BiasView(const Weight& bias) {
  if (bias.empty()) return std::nullopt;
  return bias.view;
}

}  // namespace

absl::StatusOr<ColumnParallelLinear> ColumnParallelLinear::Load(
    absl::Span<const Projection> projections, int64_t inputs, bool bias, LoadContext& ctx) {
  ColumnParallelLinear layer;
  std::vector<WeightPart> weights;
  std::vector<WeightPart> biases;
  for (const Projection& p : projections) {
    layer.outputs_ += p.part.size();
    weights.push_back(MatrixPart(p.prefix + ".weight", p.outputs, inputs, p.part, {0, inputs}));
    biases.push_back(VectorPart(p.prefix + ".bias", p.outputs, p.part));
  }
  ASSIGN_OR_RETURN(layer.weight_, ctx.weights.Load(weights, ctx.weight_dtype));
  if (bias) {
    ASSIGN_OR_RETURN(layer.bias_, ctx.weights.Load(biases, ctx.vector_dtype));
  }
  return layer;
}

absl::Status ColumnParallelLinear::Forward(const OpContext& op, const TensorView& x,
                                           const TensorView& y) const {
  return Linear(op, {.x = x, .weight = weight_.view, .bias = BiasView(bias_), .y = y});
}

absl::StatusOr<RowParallelLinear> RowParallelLinear::Load(const Projection& p, bool bias,
                                                          LoadContext& ctx) {
  RowParallelLinear layer;
  ASSIGN_OR_RETURN(layer.weight_, ctx.weights.Load(MatrixPart(p.prefix + ".weight", p.outputs,
                                                              p.inputs, {0, p.outputs}, p.part),
                                                   ctx.weight_dtype));
  if (bias) {
    const Range part = {0, ctx.rank == 0 ? p.outputs : 0};
    ASSIGN_OR_RETURN(layer.bias_, ctx.weights.Load(VectorPart(p.prefix + ".bias", p.outputs, part),
                                                   ctx.vector_dtype));
  }
  return layer;
}

absl::Status RowParallelLinear::PartialForward(const OpContext& op, const TensorView& x,
                                               const TensorView& y) const {
  return Linear(op, {.x = x, .weight = weight_.view, .bias = BiasView(bias_), .y = y});
}

}  // namespace millrace
