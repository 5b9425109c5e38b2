#include "kernels/rope/rope.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/rope/rope_impl.h"

namespace millrace {
namespace {

constexpr OpTable<RopeArgs> kRope = {.op = "Rope", .cpu = RopeCpu, .cuda = RopeCuda};

}  // namespace

absl::Status Rope(const OpContext& ctx, const RopeArgs& args) {
  int64_t tokens = kUnbound, heads = kUnbound, dim = kUnbound;
  int64_t half = args.x.rank == 3 ? args.x.dim(2) / 2 : kUnbound;
  RETURN_IF_ERROR(
      ShapeChecker("Rope", ctx.device.type())
          .Bind("x", args.x, {&tokens, &heads, &dim}, {DType::kF32, DType::kBF16})
          .Bind("positions", args.positions, {&tokens}, {DType::kI32})
          .Bind("inv_freq", args.inv_freq, {&half}, {DType::kF32})
          .Require(dim % 2 == 0 && dim <= kMaxRopeDim, "x.dim(2) must be even and at most 512")
          .status());
  if (args.x.empty()) return absl::OkStatus();
  return RunOnDevice(kRope, ctx, args);
}

}  // namespace millrace
