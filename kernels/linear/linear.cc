#include "kernels/linear/linear.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear/linear_impl.h"

namespace millrace {
namespace {

constexpr OpTable<LinearArgs> kLinear = {.op = "Linear", .cpu = LinearCpu, .cuda = LinearCuda};

}  // namespace

absl::Status Linear(const OpContext& ctx, const LinearArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound, outputs = kUnbound;
  ShapeChecker checker("Linear", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &inputs}, {DType::kF32, DType::kBF16})
      .Bind("weight", args.weight, {&outputs, &inputs}, {DType::kF32, DType::kBF16});
  if (args.bias) checker.Bind("bias", *args.bias, {&outputs}, {DType::kF32, DType::kBF16});
  checker.Bind("y", args.y, {&tokens, &outputs}, {DType::kF32, DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kLinear, ctx, args);
}

int64_t LinearWorkspaceBytes(Device& device, int64_t max_inputs, int64_t max_outputs) {
  if (device.type() != DeviceType::kCpu) return LinearCudaWorkspaceBytes();
  return LinearCpuWorkspaceBytes(device.thread_pool()->threads(), max_inputs, max_outputs);
}

}  // namespace millrace
