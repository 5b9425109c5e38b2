#include "engine/layers/llama_mlp.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/fp8_weight.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "kernels/gate_up/gate_up.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu_quantize/swiglu_quantize.h"

namespace millrace {
namespace {

// How gate and up rows are laid out for GateUp, 0 where it has no use for them.
int64_t GateUpBlockOf(const LoadContext& ctx, const LlamaMlpConfig& config, const LinearPlan& plan,
                      Range part) {
  const bool floats = plan.form == LinearForm::kPlain || plan.form == LinearForm::kWidened;
  const bool fits = floats && ctx.weight_dtype == DType::kBF16 && !config.bias &&
                    GateUpCovers(ctx.device, 1, config.hidden_size, part.size());
  return fits ? kGateUpBlock : 0;
}

// This rank's columns of the MLP, in whole blocks of scales where weights have such.
absl::StatusOr<Range> ColumnsOf(const std::string& prefix, int64_t width, int64_t unit,
                                const LoadContext& ctx) {
  const int64_t units = (width + unit - 1) / unit;
  if (units < ctx.size) {
    const std::string what = unit == 1 ? "" : absl::StrCat(" in blocks of ", unit);
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": tensor parallel size ", ctx.size,
                                                   " exceeds the ", width, " MLP columns", what));
  }
  const Range part = BalancedRange(units, ctx.size, ctx.rank);
  return Range{part.begin * unit, std::min(width, part.end * unit)};
}

}  // namespace

absl::StatusOr<LlamaMlp> LlamaMlp::Load(const LlamaMlpConfig& config, const std::string& prefix,
                                        LoadContext& ctx) {
  const int64_t width = config.intermediate_size;
  const std::string both[] = {prefix + ".gate_proj", prefix + ".up_proj"};
  const std::string down = prefix + ".down_proj";
  ASSIGN_OR_RETURN(const LinearPlan plan, PlanLinear(both, ctx));
  ASSIGN_OR_RETURN(const LinearPlan down_plan, PlanLinear({&down, 1}, ctx));
  const int64_t unit = std::max(CutUnit(plan), CutUnit(down_plan));
  ASSIGN_OR_RETURN(const Range part, ColumnsOf(prefix, width, unit, ctx));
  LlamaMlp layer;
  layer.hidden_size_ = config.hidden_size;
  layer.bias_ = config.bias;
  layer.gate_up_block_ = GateUpBlockOf(ctx, config, plan, part);
  const int64_t block = layer.gate_up_block_ == 0 ? part.size() : layer.gate_up_block_;
  std::vector<ColumnParallelLinear::Projection> gate_up;
  for (int64_t begin = part.begin; begin < part.end; begin += block) {
    const Range rows = {begin, begin + block};
    gate_up.push_back({both[0], width, rows});
    gate_up.push_back({both[1], width, rows});
  }
  ASSIGN_OR_RETURN(layer.gate_up_proj_,
                   ColumnParallelLinear::Load(gate_up, config.hidden_size, config.bias, plan, ctx));
  ASSIGN_OR_RETURN(layer.down_proj_,
                   RowParallelLinear::Load({down, config.hidden_size, width, part}, config.bias,
                                           down_plan, ctx));
  return layer;
}

absl::StatusOr<bool> LlamaMlp::GatedAtOnce(const OpContext& op, const LinearInput& in,
                                           LinearInput& y) const {
  const int64_t tokens = y.x.dim(0), width = y.x.dim(1);
  const LinearWeight& weight = gate_up_proj_.weight();
  if (gate_up_block_ == kGateUpBlock &&
      GateUpCovers(op.device.type(), tokens, hidden_size_, width)) {
    RETURN_IF_ERROR(GateUp(op, {.x = in.x, .weight = weight.plain(), .y = y.x}));
    return true;
  }
  if (bias_ || !weight.GatedCovers(y)) return false;
  RETURN_IF_ERROR(weight.GatedForward(op, in, y));
  return true;
}

absl::Status LlamaMlp::Gate(const OpContext& op, const TensorView& gate_up, LinearInput& y) const {
  if (!y.fp8.has_value()) {
    return Swiglu(op, {.x = gate_up, .y = y.x, .block = gate_up_block_});
  }
  y.quantised = true;
  return SwigluQuantize(op, {.x = gate_up,
                             .block = gate_up_block_,
                             .codes = y.fp8->codes,
                             .scale = y.fp8->scale,
                             .unit = y.fp8->unit,
                             .rounding = y.fp8->rounding});
}

absl::Status LlamaMlp::Forward(ForwardContext& ctx, const LinearInput& in,
                               const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  const int64_t tokens = in.x.dim(0);
  const int64_t width = gate_up_proj_.outputs() / 2;
  ASSIGN_OR_RETURN(const TensorView gate_up,
                   TakeActivation(scope, ctx.op, in.x.dtype, tokens, 2 * width));
  ASSIGN_OR_RETURN(const TensorView gated,
                   TakeActivation(scope, ctx.op, in.x.dtype, tokens, width));
  ASSIGN_OR_RETURN(LinearInput down_in, down_proj_.weight().TakeInput(scope, gated));
  ASSIGN_OR_RETURN(const bool at_once, GatedAtOnce(ctx.op, in, down_in));
  if (!at_once) {
    RETURN_IF_ERROR(gate_up_proj_.Forward(ctx.op, in, gate_up));
    RETURN_IF_ERROR(Gate(ctx.op, gate_up, down_in));
  }
  return down_proj_.PartialForward(ctx.op, down_in, out);
}

int64_t LlamaMlp::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  const int64_t width = gate_up_proj_.outputs() / 2;
  const int64_t linear = gate_up_proj_.weight().WorkspaceBytes(device, limits.tokens) +
                         down_proj_.weight().WorkspaceBytes(device, limits.tokens);
  return ActivationBytes(dtype, limits.tokens, 2 * width) +
         ActivationBytes(dtype, limits.tokens, width) +
         std::max(linear, SwigluQuantizeWorkspaceBytes(dtype, limits.tokens, width));
}

}  // namespace millrace
