#include "kernels/rms_norm/rms_norm.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm/rms_norm_impl.h"

namespace millrace {
namespace {

constexpr OpTable<RmsNormArgs> kRmsNorm = {.op = "RmsNorm", .cpu = RmsNormCpu, .cuda = RmsNormCuda};

}  // namespace

absl::Status RmsNorm(const OpContext& ctx, const RmsNormArgs& args) {
  int64_t tokens = kUnbound, size = kUnbound;
  ShapeChecker checker("RmsNorm", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &size}, {DType::kF32, DType::kBF16});
  if (args.residual) checker.Bind("residual", *args.residual, {&tokens, &size}, {args.x.dtype});
  checker.Bind("weight", args.weight, {&size}, {DType::kF32, DType::kBF16})
      .Bind("y", args.y, {&tokens, &size}, {args.x.dtype})
      .Require(args.eps > 0, "eps must be positive");
  RETURN_IF_ERROR(checker.status());
  if (args.x.empty()) return absl::OkStatus();
  return RunOnDevice(kRmsNorm, ctx, args);
}

}  // namespace millrace
