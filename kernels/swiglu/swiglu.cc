#include "kernels/swiglu/swiglu.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {

constexpr OpTable<SwigluArgs> kSwiglu = {.op = "Swiglu", .cpu = SwigluCpu, .cuda = SwigluCuda};

}  // namespace

absl::Status Swiglu(const OpContext& ctx, const SwigluArgs& args) {
  int64_t tokens = kUnbound, both = kUnbound;
  int64_t size = args.x.rank == 2 ? args.x.dim(1) / 2 : kUnbound;
  RETURN_IF_ERROR(ShapeChecker("Swiglu", ctx.device.type())
                      .Bind("x", args.x, {&tokens, &both}, {DType::kF32, DType::kBF16})
                      .Require(both % 2 == 0, "x.dim(1) must be even")
                      .Bind("y", args.y, {&tokens, &size}, {args.x.dtype})
                      .Require(args.block >= 0 && (args.block == 0 || size % args.block == 0),
                               "block must divide the number of outputs")
                      .Require(args.limit >= 0, "limit must not be negative")
                      .status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kSwiglu, ctx, args);
}

}  // namespace millrace
