#include "kernels/swiglu_quantize/swiglu_quantize.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/swiglu_quantize/swiglu_quantize_impl.h"

namespace millrace {
namespace {

constexpr OpTable<SwigluQuantizeArgs> kSwigluQuantize = {
    .op = "SwigluQuantize", .cpu = SwigluThenQuantize, .cuda = SwigluQuantizeCuda};

}  // namespace

absl::Status SwigluQuantize(const OpContext& ctx, const SwigluQuantizeArgs& args) {
  int64_t tokens = kUnbound, both = kUnbound;
  const bool of_rows = args.unit == QuantizeUnit::kGroup || args.unit == QuantizeUnit::kToken ||
                       args.rounding == QuantizeScale::kGiven;
  ShapeChecker checker("SwigluQuantize", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &both}, {DType::kF32, DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  const int64_t size = both / 2;
  checker.Require(both % 2 == 0, "x.dim(1) must be even")
      .Require(args.block >= 0 && (args.block == 0 || size % args.block == 0),
               "block must divide the number of outputs")
      .Require(args.limit >= 0, "limit must not be negative")
      .Require(of_rows, "the scale must be of groups, of tokens or given");
  RETURN_IF_ERROR(checker.status());
  const TensorView like_y = args.x.Cols(0, size);
  RETURN_IF_ERROR(CheckQuantize("SwigluQuantize", ctx.device.type(), QuantizeArgsOf(args, like_y)));
  if (args.codes.empty()) return absl::OkStatus();
  return RunOnDevice(kSwigluQuantize, ctx, args);
}

absl::Status SwigluThenQuantize(const OpContext& ctx, const SwigluQuantizeArgs& args) {
  const int64_t tokens = args.x.dim(0), size = args.x.dim(1) / 2;
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const rows,
                   scope.Take(SwigluQuantizeWorkspaceBytes(args.x.dtype, tokens, size)));
  const TensorView y = TensorView::Of(rows, args.x.dtype, {tokens, size}, ctx.device.type());
  RETURN_IF_ERROR(Swiglu(ctx, SwigluArgsOf(args, y)));
  return Quantize(ctx, QuantizeArgsOf(args, y));
}

int64_t SwigluQuantizeWorkspaceBytes(DType dtype, int64_t tokens, int64_t outputs) {
  return tokens * outputs * DTypeBytes(dtype);
}

}  // namespace millrace
