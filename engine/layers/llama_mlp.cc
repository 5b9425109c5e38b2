#include "engine/layers/llama_mlp.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "kernels/gate_up/gate_up.h"
#include "kernels/linear/linear.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {
namespace {

// How gate and up rows are laid out for GateUp, 0 where it has no use for them.
int64_t GateUpBlockOf(const LoadContext& ctx, const LlamaMlpConfig& config, Range part) {
  const bool fits = ctx.weight_dtype == DType::kBF16 && !config.bias &&
                    GateUpCovers(ctx.device, 1, config.hidden_size, part.size());
  return fits ? kGateUpBlock : 0;
}

}  // namespace

absl::StatusOr<LlamaMlp> LlamaMlp::Load(const LlamaMlpConfig& config, const std::string& prefix,
                                        LoadContext& ctx) {
  const int64_t width = config.intermediate_size;
  if (width < ctx.size) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": tensor parallel size ", ctx.size,
                                                   " exceeds the ", width, " MLP columns"));
  }
  const Range part = BalancedRange(width, ctx.size, ctx.rank);
  LlamaMlp layer;
  layer.hidden_size_ = config.hidden_size;
  layer.gate_up_block_ = GateUpBlockOf(ctx, config, part);
  const int64_t block = layer.gate_up_block_ == 0 ? part.size() : layer.gate_up_block_;
  std::vector<ColumnParallelLinear::Projection> gate_up;
  for (int64_t begin = part.begin; begin < part.end; begin += block) {
    const Range rows = {begin, begin + block};
    gate_up.push_back({prefix + ".gate_proj", width, rows});
    gate_up.push_back({prefix + ".up_proj", width, rows});
  }
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
  const bool fused = gate_up_block_ == kGateUpBlock &&
                     GateUpCovers(ctx.op.device.type(), x.dim(0), hidden_size_, width);
  if (fused) {
    RETURN_IF_ERROR(GateUp(ctx.op, {.x = x, .weight = gate_up_proj_.weight(), .y = gated}));
  } else {
    RETURN_IF_ERROR(gate_up_proj_.Forward(ctx.op, x, gate_up));
    RETURN_IF_ERROR(Swiglu(ctx.op, {.x = gate_up, .y = gated, .block = gate_up_block_}));
  }
  return down_proj_.PartialForward(ctx.op, gated, out);
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
