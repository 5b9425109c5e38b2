#include "engine/layers/fp8_linear.h"

#include <algorithm>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gate_up/fp8_gate_up.h"
#include "kernels/fp8_gated/fp8_gated.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm.h"

namespace millrace {
namespace {

constexpr int64_t kGroup = kQuantizeGroup;
static_assert(kQuantizeGroup == kFp8GemmBlock);

// Tokens from one row of scales to the next: rows lie on 16 bytes, which the fast products want.
int64_t ScaleStride(int64_t tokens) { return (tokens + 3) / 4 * 4; }

int64_t Groups(int64_t inputs) { return (inputs + kGroup - 1) / kGroup; }

// Zeros as Fp8Gemm wants its flags; nothing where it wants none.
absl::StatusOr<Weight> LoadFlags(WeightLoader& loader) {
  if (loader.recording()) return Weight();
  ASSIGN_OR_RETURN(const int64_t count, Fp8GemmFlags(*loader.device()));
  if (count == 0) return Weight();
  ASSIGN_OR_RETURN(Weight flags, loader.Upload(std::vector<float>(static_cast<size_t>(count))));
  flags.view.dtype = DType::kI32;  // zero is zero
  return flags;
}

}  // namespace

absl::StatusOr<Fp8Linear> Fp8Linear::Load(absl::Span<const StoredPart> parts,
                                          const LinearPlan& plan, LoadContext& ctx) {
  Fp8Linear layer;
  layer.inputs_ = parts[0].col_part.size();
  for (const StoredPart& part : parts) layer.outputs_ += part.row_part.size();
  ASSIGN_OR_RETURN(layer.weight_, LoadFp8(parts, plan, ctx));
  ASSIGN_OR_RETURN(layer.flags_, LoadFlags(ctx.weights));
  if (!ctx.weights.recording() && layer.weight_.runs.size() == 1) {
    Device& device = *ctx.weights.device();
    ASSIGN_OR_RETURN(layer.has_gated_, Fp8GatedCovers(device, layer.inputs_, layer.outputs_ / 2));
    ASSIGN_OR_RETURN(layer.gate_up_tokens_,
                     Fp8GateUpLeastTokens(device, layer.inputs_, layer.outputs_ / 2));
    ASSIGN_OR_RETURN(layer.quantizes_,
                     QuantizeFp8GemmCovers(device, layer.inputs_, layer.outputs_));
  }
  return layer;
}

absl::StatusOr<LinearInput> Fp8Linear::TakeInput(WorkspaceScope& scope, const TensorView& x) const {
  const int64_t tokens = x.dim(0);
  ASSIGN_OR_RETURN(void* const codes, scope.Take(tokens * inputs_));
  QuantizeArgs args = {.codes = TensorView::Of(codes, DType::kU8, {tokens, inputs_}, x.device)};
  if (!weight_.input.empty()) {
    args.scale = weight_.input.view;
    args.unit = QuantizeUnit::kTensor;
    args.rounding = QuantizeScale::kGiven;
    return LinearInput{.x = x, .fp8 = args};
  }
  const bool groups = weight_.scales == Fp8GemmScales::kBlocks;
  const int64_t rows = groups ? Groups(inputs_) : 1;
  ASSIGN_OR_RETURN(void* const scales,
                   scope.Take(rows * ScaleStride(tokens) * int64_t{sizeof(float)}));
  if (groups) {
    args.scale =
        TensorView::Of(scales, DType::kF32, {rows, ScaleStride(tokens)}, x.device).Cols(0, tokens);
    args.unit = QuantizeUnit::kGroup;
  } else {
    args.scale = TensorView::Of(scales, DType::kF32, {tokens}, x.device);
    args.unit = QuantizeUnit::kToken;
  }
  return LinearInput{.x = x, .fp8 = args};
}

int64_t Fp8Linear::InputBytes(int64_t tokens, int64_t inputs) {
  return ActivationBytes(DType::kU8, tokens, inputs) +
         ActivationBytes(DType::kF32, Groups(inputs), ScaleStride(tokens));
}

absl::StatusOr<QuantizeArgs> Fp8Linear::CodesOf(const OpContext& op, const LinearInput& in) {
  QuantizeArgs args = *in.fp8;
  if (!in.quantised) {
    args.x = in.x;
    RETURN_IF_ERROR(Quantize(op, args));
  }
  return args;
}

absl::Status Fp8Linear::Forward(const OpContext& op, const LinearInput& in,
                                const std::optional<TensorView>& bias, const TensorView& y) const {
  if (QuantizeCovers(in)) {
    return QuantizeFp8Gemm(op, {.x = in.x,
                                .weight = weight_.codes.view,
                                .weight_scale = weight_.scale.view,
                                .y = y,
                                .bias = bias});
  }
  ASSIGN_OR_RETURN(const QuantizeArgs args, CodesOf(op, in));
  const bool blocks = weight_.scales == Fp8GemmScales::kBlocks;
  const TensorView& scale = weight_.scale.view;
  for (const Fp8Weight::Run& run : weight_.runs) {
    const Range rows = run.rows, scale_rows = run.scale_rows;
    std::optional<TensorView> own_bias;
    if (bias.has_value()) own_bias = bias->Rows(rows.begin, rows.end);
    RETURN_IF_ERROR(
        Fp8Gemm(op, {.x = args.codes,
                     .x_scale = args.scale,
                     .weight = weight_.codes.view.Rows(rows.begin, rows.end),
                     .weight_scale = blocks ? scale.Rows(scale_rows.begin, scale_rows.end) : scale,
                     .y = y.Cols(rows.begin, rows.end),
                     .flags = flags_.view,
                     .scales = weight_.scales,
                     .bias = own_bias}));
  }
  return absl::OkStatus();
}

absl::Status Fp8Linear::GatedForward(const OpContext& op, const LinearInput& in,
                                     LinearInput& y) const {
  ASSIGN_OR_RETURN(const QuantizeArgs args, CodesOf(op, in));
  if (GateUpCovers(y)) {
    y.quantised = true;
    return Fp8GateUp(op, {.x = args.codes,
                          .x_scale = args.scale,
                          .weight = weight_.codes.view,
                          .weight_scale = weight_.scale.view,
                          .codes = y.fp8->codes,
                          .scale = y.fp8->scale,
                          .flags = flags_.view,
                          .scales = weight_.scales,
                          .rounding = y.fp8->rounding});
  }
  return Fp8Gated(op, {.x = args.codes,
                       .x_scale = args.scale,
                       .weight = weight_.codes.view,
                       .weight_scale = weight_.scale.view,
                       .y = y.x,
                       .scales = weight_.scales});
}

bool Fp8Linear::QuantizeCovers(const LinearInput& in) const {
  return quantizes_ && !in.quantised && in.x.dim(0) == 1 && in.x.dtype == DType::kBF16 &&
         in.fp8->unit == QuantizeUnit::kToken;
}

bool Fp8Linear::GatedCovers(const LinearInput& y) const {
  return GateUpCovers(y) || (has_gated_ && y.x.dim(0) <= kFp8GatedTokens);
}

bool Fp8Linear::GateUpCovers(const LinearInput& y) const {
  return y.x.dim(0) >= gate_up_tokens_ && y.fp8.has_value() && y.fp8->unit == QuantizeUnit::kGroup;
}

int64_t Fp8Linear::WorkspaceBytes(Device& device) const {
  const absl::StatusOr<int64_t> product = Fp8GemmWorkspaceBytes(device, inputs_);
  // It fails only as the device does, which the next call says.
  return std::max(product.value_or(0), kQuantizeWorkspaceBytes);
}

}  // namespace millrace
