#include "kernels/moe_experts/moe_experts.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/moe_experts/moe_experts_impl.h"

namespace millrace {
namespace {

constexpr OpTable<MoeExpertsArgs> kMoeExperts = {
    .op = "MoeExperts", .cpu = MoeExpertsCpu, .cuda = MoeExpertsCuda};

absl::Status CheckStacks(const OpContext& ctx, const MoeExpertsArgs& a) {
  const DeviceType device = ctx.device.type();
  RETURN_IF_ERROR(CheckStoredMatrix("MoeExperts", "gate", device, a.gate));
  RETURN_IF_ERROR(CheckStoredMatrix("MoeExperts", "up", device, a.up));
  RETURN_IF_ERROR(CheckStoredMatrix("MoeExperts", "down", device, a.down));
  return ShapeChecker("MoeExperts", device)
      .Require(a.up.format == a.gate.format && a.up.count == a.gate.count &&
                   a.up.rows == a.gate.rows && a.up.cols == a.gate.cols,
               "up must have gate's format, number of matrices and sizes")
      .Require(
          a.down.count == a.gate.count && a.down.rows == a.gate.cols && a.down.cols == a.gate.rows,
          "down must have gate's number of matrices and its sizes exchanged")
      .status();
}

}  // namespace

absl::Status MoeExperts(const OpContext& ctx, const MoeExpertsArgs& args) {
  int64_t tokens = kUnbound, chosen = kUnbound, hidden = args.gate.cols;
  RETURN_IF_ERROR(CheckStacks(ctx, args));
  RETURN_IF_ERROR(ShapeChecker("MoeExperts", ctx.device.type())
                      .Bind("x", args.x, {&tokens, &hidden}, {DType::kF32, DType::kBF16})
                      .Bind("experts", args.experts, {&tokens, &chosen}, {DType::kI32})
                      .Bind("weights", args.weights, {&tokens, &chosen}, {DType::kF32})
                      .Bind("y", args.y, {&tokens, &hidden}, {DType::kF32})
                      .Require(args.first_expert >= 0, "first_expert must not be negative")
                      .Require(args.limit >= 0, "limit must not be negative")
                      .status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kMoeExperts, ctx, args);
}

int64_t MoeExpertsWorkspaceBytes(Device& device, const MoeExpertsShape& shape) {
  if (device.type() == DeviceType::kCuda) return MoeExpertsCudaWorkspaceBytes(shape);
  return MoeExpertsCpuWorkspaceBytes(device.thread_pool()->threads(), shape);
}

}  // namespace millrace
