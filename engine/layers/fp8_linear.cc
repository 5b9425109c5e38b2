#include "engine/layers/fp8_linear.h"

#include <algorithm>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize/quantize.h"

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
  return layer;
}

absl::Status Fp8Linear::Forward(const OpContext& op, const TensorView& x,
                                const TensorView& y) const {
  WorkspaceScope scope(op.workspace);
  const int64_t tokens = x.dim(0);
  ASSIGN_OR_RETURN(const TensorView codes, TakeActivation(scope, op, DType::kU8, tokens, inputs_));
  QuantizeArgs args = {.x = x, .codes = codes};
  if (weight_.scales == Fp8GemmScales::kBlocks) {
    ASSIGN_OR_RETURN(const TensorView rows, TakeActivation(scope, op, DType::kF32, Groups(inputs_),
                                                           ScaleStride(tokens)));
    args.scale = rows.Cols(0, tokens);
    args.unit = QuantizeUnit::kGroup;
  } else if (!weight_.input.empty()) {
    args.scale = weight_.input.view;
    args.unit = QuantizeUnit::kTensor;
    args.rounding = QuantizeScale::kGiven;
  } else {
    ASSIGN_OR_RETURN(void* const scales, scope.Take(tokens * int64_t{sizeof(float)}));
    args.scale = TensorView::Of(scales, DType::kF32, {tokens}, op.device.type());
    args.unit = QuantizeUnit::kToken;
  }
  RETURN_IF_ERROR(Quantize(op, args));
  return Products(op, codes, args.scale, y);
}

absl::Status Fp8Linear::Products(const OpContext& op, const TensorView& codes,
                                 const TensorView& x_scale, const TensorView& y) const {
  const bool blocks = weight_.scales == Fp8GemmScales::kBlocks;
  const TensorView& scale = weight_.scale.view;
  for (const Fp8Weight::Run& run : weight_.runs) {
    const Range rows = run.rows, scale_rows = run.scale_rows;
    RETURN_IF_ERROR(Fp8Gemm(
        op, {.x = codes,
             .x_scale = x_scale,
             .weight = weight_.codes.view.Rows(rows.begin, rows.end),
             .weight_scale = blocks ? scale.Rows(scale_rows.begin, scale_rows.end) : scale,
             .y = y.Cols(rows.begin, rows.end),
             .flags = flags_.view,
             .scales = weight_.scales}));
  }
  return absl::OkStatus();
}

int64_t Fp8Linear::WorkspaceBytes(Device& device, int64_t tokens) const {
  const absl::StatusOr<int64_t> product = Fp8GemmWorkspaceBytes(device, inputs_);
  // Fails with the device itself, which the next call will say.
  return ActivationBytes(DType::kU8, tokens, inputs_) +
         ActivationBytes(DType::kF32, Groups(inputs_), ScaleStride(tokens)) +
         std::max(product.value_or(0), kQuantizeWorkspaceBytes);
}

}  // namespace millrace
