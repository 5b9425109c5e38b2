#include "kernels/rms_norm_quantize/rms_norm_quantize.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize_impl.h"

namespace millrace {
namespace {

constexpr OpTable<RmsNormQuantizeArgs> kRmsNormQuantize = {
    .op = "RmsNormQuantize", .cpu = RmsNormThenQuantize, .cuda = RmsNormQuantizeCuda};

}  // namespace

absl::Status RmsNormQuantize(const OpContext& ctx, const RmsNormQuantizeArgs& args) {
  int64_t tokens = kUnbound, size = kUnbound;
  const bool of_rows = args.unit == QuantizeUnit::kGroup || args.unit == QuantizeUnit::kToken ||
                       args.rounding == QuantizeScale::kGiven;
  ShapeChecker checker("RmsNormQuantize", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &size}, {DType::kF32, DType::kBF16});
  if (args.residual) checker.Bind("residual", *args.residual, {&tokens, &size}, {args.x.dtype});
  checker.Bind("weight", args.weight, {&size}, {DType::kF32, DType::kBF16});
  if (args.y) checker.Bind("y", *args.y, {&tokens, &size}, {args.x.dtype});
  checker.Require(args.eps > 0, "eps must be positive")
      .Require(of_rows, "the scale must be of groups, of tokens or given");
  RETURN_IF_ERROR(checker.status());
  RETURN_IF_ERROR(
      CheckQuantize("RmsNormQuantize", ctx.device.type(), QuantizeArgsOf(args, args.x)));
  if (args.x.empty()) return absl::OkStatus();
  return RunOnDevice(kRmsNormQuantize, ctx, args);
}

absl::Status RmsNormThenQuantize(const OpContext& ctx, const RmsNormQuantizeArgs& args) {
  WorkspaceScope scope(ctx.workspace);
  TensorView y;
  if (args.y) {
    y = *args.y;
  } else {
    const int64_t tokens = args.x.dim(0), size = args.x.dim(1);
    ASSIGN_OR_RETURN(void* const rows,
                     scope.Take(RmsNormQuantizeWorkspaceBytes(args.x.dtype, tokens, size)));
    y = TensorView::Of(rows, args.x.dtype, {tokens, size}, ctx.device.type());
  }
  RETURN_IF_ERROR(RmsNorm(ctx, NormArgsOf(args, y)));
  return Quantize(ctx, QuantizeArgsOf(args, y));
}

int64_t RmsNormQuantizeWorkspaceBytes(DType dtype, int64_t tokens, int64_t size) {
  return tokens * size * DTypeBytes(dtype);
}

}  // namespace millrace
