#include "engine/layers/llama_mlp.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "kernels/linear/linear.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {

absl::StatusOr<LlamaMlp> LlamaMlp::Load(const LlamaMlpConfig& config, const std::string& prefix,
                                        LoadContext& ctx) {
  const int64_t width = config.intermediate_size;
  if (width < ctx.size) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": tensor parallel size ", ctx.size,
                                                   " exceeds the ", width, " MLP columns"));
  }
  const Range part = BalancedRange(width, ctx.size, ctx.rank);
  const ColumnParallelLinear::Projection gate_up[] = {{prefix + ".gate_proj", width, part},
                                                      {prefix + ".up_proj", width, part}};
  LlamaMlp layer;
  layer.hidden_size_ = config.hidden_size;
  ASSIGN_OR_RETURN(layer.gate_up_proj_,
                   ColumnParallelLinear::Load(gate_up, config.hidden_size, config.bias, ctx));
  ASSIGN_OR_RETURN(layer.down_proj_,
                   RowParallelLinear::Load({prefix + ".down_proj", config.hidden_size, width, part},
                                           config.bias, ctx));
  return layer;
}

absl::Status LlamaMlp::Forward(ForwardContext& ctx, const TensorView& x,
                               const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  const int64_t width = gate_up_proj_.outputs() / 2;
  ASSIGN_OR_RETURN(const TensorView gate_up,
                   TakeActivation(scope, ctx.op, x.dtype, x.dim(0), 2 * width));
  ASSIGN_OR_RETURN(const TensorView gated, TakeActivation(scope, ctx.op, x.dtype, x.dim(0), width));
  RETURN_IF_ERROR(gate_up_proj_.Forward(ctx.op, x, gate_up));
  RETURN_IF_ERROR(Swiglu(ctx.op, {.x = gate_up, .y = gated}));
  return down_proj_.Forward(ctx, gated, out);
}

int64_t LlamaMlp::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  const int64_t width = gate_up_proj_.outputs() / 2;
  return ActivationBytes(dtype, limits.tokens, 2 * width) +
         ActivationBytes(dtype, limits.tokens, width) +
         LinearWorkspaceBytes(device, std::max(hidden_size_, width),
                              std::max(hidden_size_, 2 * width));
}

}  // namespace millrace
