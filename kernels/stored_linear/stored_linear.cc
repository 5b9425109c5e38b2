#include "kernels/stored_linear/stored_linear.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/stored_linear/stored_linear_impl.h"

namespace millrace {
namespace {

constexpr OpTable<StoredLinearArgs> kStoredLinear = {
    .op = "StoredLinear", .cpu = StoredLinearCpu, .cuda = StoredLinearCuda};

}  // namespace

absl::Status StoredLinear(const OpContext& ctx, const StoredLinearArgs& args) {
  int64_t tokens = kUnbound;
  int64_t inputs = args.weight.cols, outputs = args.weight.rows;
  RETURN_IF_ERROR(CheckStoredMatrix("StoredLinear", "weight", ctx.device.type(), args.weight));
  RETURN_IF_ERROR(ShapeChecker("StoredLinear", ctx.device.type())
                      .Require(args.weight.count == 1, "weight must be one matrix")
                      .Bind("x", args.x, {&tokens, &inputs}, {DType::kF32, DType::kBF16})
                      .Bind("y", args.y, {&tokens, &outputs}, {DType::kF32, DType::kBF16})
                      .status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kStoredLinear, ctx, args);
}

int64_t StoredLinearWorkspaceBytes(Device& device, int64_t max_inputs) {
  if (device.type() != DeviceType::kCpu) return StoredLinearCudaWorkspaceBytes(max_inputs);
  return StoredLinearCpuWorkspaceBytes(device.thread_pool()->threads(), max_inputs);
}

}  // namespace millrace
