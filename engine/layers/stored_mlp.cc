#include "engine/layers/stored_mlp.h"

#include <algorithm>

#include "kernels/core/status.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {

absl::StatusOr<StoredMlp> StoredMlp::Load(const StoredMlpConfig& config, const std::string& prefix,
                                          LoadContext& ctx) {
  const Range all = {0, config.hidden_size};
  StoredMlp layer;
  layer.limit_ = config.limit;
  ASSIGN_OR_RETURN(layer.gate_,
                   StoredLinearLayer::Load(
                       {prefix + ".w1", config.width, config.hidden_size, config.part, all}, ctx));
  ASSIGN_OR_RETURN(layer.up_,
                   StoredLinearLayer::Load(
                       {prefix + ".w3", config.width, config.hidden_size, config.part, all}, ctx));
  ASSIGN_OR_RETURN(layer.down_,
                   StoredLinearLayer::Load(
                       {prefix + ".w2", config.hidden_size, config.width, all, config.part}, ctx));
  return layer;
}

absl::Status StoredMlp::Forward(const OpContext& op, const TensorView& x,
                                const TensorView& out) const {
  WorkspaceScope scope(op.workspace);
  const int64_t width = gate_.outputs();
  ASSIGN_OR_RETURN(const TensorView both, TakeActivation(scope, op, x.dtype, x.dim(0), 2 * width));
  ASSIGN_OR_RETURN(const TensorView gated, TakeActivation(scope, op, x.dtype, x.dim(0), width));
  RETURN_IF_ERROR(gate_.Forward(op, x, both.Cols(0, width)));
  RETURN_IF_ERROR(up_.Forward(op, x, both.Cols(width, 2 * width)));
  RETURN_IF_ERROR(Swiglu(op, {.x = both, .y = gated, .limit = limit_}));
  return down_.Forward(op, gated, out);
}

int64_t StoredMlp::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  const int64_t width = gate_.outputs();
  return ActivationBytes(dtype, limits.tokens, 2 * width) +
         ActivationBytes(dtype, limits.tokens, width) +
         std::max(gate_.WorkspaceBytes(device), down_.WorkspaceBytes(device));
}

}  // namespace millrace
