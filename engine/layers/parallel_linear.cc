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

absl::StatusOr<LinearWeight> LinearWeight::Load(absl::Span<const StoredPart> parts,
                                                const LinearPlan& plan, LoadContext& ctx) {
  LinearWeight weight;
  switch (plan.form) {
    case LinearForm::kStored:
    case LinearForm::kQuantised: {
      ASSIGN_OR_RETURN(weight.fp8_, Fp8Linear::Load(parts, plan, ctx));
      return weight;
    }
    case LinearForm::kWidened: {
      ASSIGN_OR_RETURN(weight.plain_, LoadWidened(parts, plan.scheme, ctx));
      return weight;
    }
    case LinearForm::kPlain:
      break;
  }
  std::vector<WeightPart> weights;
  for (const StoredPart& p : parts) {
    weights.push_back(MatrixPart(p.prefix + ".weight", p.rows, p.cols, p.row_part, p.col_part));
  }
  ASSIGN_OR_RETURN(weight.plain_, ctx.weights.Load(weights, ctx.weight_dtype));
  return weight;
}

absl::StatusOr<LinearInput> LinearWeight::TakeInput(WorkspaceScope& scope,
                                                    const TensorView& x) const {
  if (fp8_.has_value()) return fp8_->TakeInput(scope, x);
  return LinearInput{.x = x};
}

absl::Status LinearWeight::Forward(const OpContext& op, const LinearInput& in, const Weight& bias,
                                   const TensorView& y) const {
  if (fp8_.has_value()) return fp8_->Forward(op, in, BiasView(bias), y);
  return Linear(op, {.x = in.x, .weight = plain_.view, .bias = BiasView(bias), .y = y});
}

absl::Status LinearWeight::GatedForward(const OpContext& op, const LinearInput& in,
                                        LinearInput& y) const {
  return fp8_->GatedForward(op, in, y);
}

bool LinearWeight::GatedCovers(const LinearInput& y) const {
  return fp8_.has_value() && fp8_->GatedCovers(y);
}

int64_t LinearWeight::WorkspaceBytes(Device& device, int64_t tokens) const {
  if (fp8_.has_value()) {
    return Fp8Linear::InputBytes(tokens, fp8_->inputs()) + fp8_->WorkspaceBytes(device);
  }
  return LinearWorkspaceBytes(device, plain_.view.dim(1), plain_.view.dim(0));
}

absl::StatusOr<ColumnParallelLinear> ColumnParallelLinear::Load(
    absl::Span<const Projection> projections, int64_t inputs, bool bias, const LinearPlan& plan,
    LoadContext& ctx) {
  ColumnParallelLinear layer;
  std::vector<StoredPart> parts;
  std::vector<WeightPart> biases;
  for (const Projection& p : projections) {
    layer.outputs_ += p.part.size();
    parts.push_back({p.prefix, p.outputs, inputs, p.part, {0, inputs}});
    biases.push_back(VectorPart(p.prefix + ".bias", p.outputs, p.part));
  }
  ASSIGN_OR_RETURN(layer.weight_, LinearWeight::Load(parts, plan, ctx));
  if (bias) {
    ASSIGN_OR_RETURN(layer.bias_, ctx.weights.Load(biases, ctx.vector_dtype));
  }
  return layer;
}

absl::Status ColumnParallelLinear::Forward(const OpContext& op, const LinearInput& in,
                                           const TensorView& y) const {
  return weight_.Forward(op, in, bias_, y);
}

absl::StatusOr<RowParallelLinear> RowParallelLinear::Load(const Projection& p, bool bias,
                                                          const LinearPlan& plan,
                                                          LoadContext& ctx) {
  RowParallelLinear layer;
  const StoredPart part = {p.prefix, p.outputs, p.inputs, {0, p.outputs}, p.part};
  ASSIGN_OR_RETURN(layer.weight_, LinearWeight::Load({&part, 1}, plan, ctx));
  if (bias) {
    const Range own = {0, ctx.rank == 0 ? p.outputs : 0};
    ASSIGN_OR_RETURN(layer.bias_, ctx.weights.Load(VectorPart(p.prefix + ".bias", p.outputs, own),
                                                   ctx.vector_dtype));
  }
  return layer;
}

absl::Status RowParallelLinear::PartialForward(const OpContext& op, const LinearInput& in,
                                               const TensorView& y) const {
  return weight_.Forward(op, in, bias_, y);
}

}  // namespace millrace
