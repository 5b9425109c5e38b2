#include "kernels/rms_norm/rms_norm.h"

#include <cmath>

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/rms_norm/rms_norm_impl.h"

namespace millrace {
namespace {

constexpr OpTable<RmsNormArgs> kRmsNorm = {.op = "RmsNorm", .cpu = RmsNormCpu, .cuda = nullptr};

}  // namespace

absl::Status RmsNorm(const OpContext& ctx, const RmsNormArgs& args) {
  int64_t tokens = kUnbound, width = kUnbound;
  ShapeChecker checker("RmsNorm", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &width}, {DType::kF32, DType::kBF16});
  if (args.residual) {
    checker.Bind("residual", *args.residual, {&tokens, &width}, {args.x.dtype});
  }
  checker.Bind("weight", args.weight, {&width}, {DType::kF32, DType::kBF16})
      .Bind("y", args.y, {&tokens, &width}, {args.x.dtype})
      .Require(args.eps > 0 && std::isfinite(args.eps), "eps must be positive and finite");
  RETURN_IF_ERROR(checker.status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kRmsNorm, ctx, args);
}

}  // namespace millrace
