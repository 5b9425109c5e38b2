#include "kernels/fp8_gated/fp8_gated.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gated/fp8_gated_impl.h"

namespace millrace {
namespace {

constexpr OpTable<Fp8GatedArgs> kFp8Gated = {
    .op = "Fp8Gated", .cpu = nullptr, .cuda = Fp8GatedCuda};

constexpr int64_t kOutputsTile = 16;

bool TakesShape(int64_t inputs, int64_t outputs) {
  return inputs > 0 && inputs % kFp8GemmBlock == 0 && outputs % kOutputsTile == 0;
}

// The product inside, with an output of the right shape.
Fp8GemmArgs ProductOf(const Fp8GatedArgs& args, int64_t rows) {
  TensorView y = TensorView::Of(args.y.data, DType::kBF16, {args.x.dim(0), rows}, args.y.device);
  // What this op has no use for.
  TensorView flags = TensorView::Of(args.y.data, DType::kI32, {0}, args.y.device);
  return {.x = args.x,
          .x_scale = args.x_scale,
          .weight = args.weight,
          .weight_scale = args.weight_scale,
          .y = y,
          .flags = flags,
          .scales = args.scales};
}

}  // namespace

absl::StatusOr<bool> Fp8GatedCovers(Device& device, int64_t inputs, int64_t outputs) {
  if (device.type() != DeviceType::kCuda || !TakesShape(inputs, outputs)) return false;
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  return properties.compute_capability >= kFp8GatedCapability;
}

absl::Status Fp8Gated(const OpContext& ctx, const Fp8GatedArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound, rows = kUnbound;
  const DeviceType device = ctx.device.type();
  ShapeChecker checker("Fp8Gated", device);
  checker.Bind("x", args.x, {&tokens, &inputs}, {DType::kU8})
      .Bind("weight", args.weight, {&rows, &inputs}, {DType::kU8})
      .Require(rows % 2 == 0, "weight.dim(0) must be even");
  RETURN_IF_ERROR(checker.status());
  int64_t outputs = rows / 2;
  checker.Bind("y", args.y, {&tokens, &outputs}, {DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  RETURN_IF_ERROR(CheckFp8Gemm("Fp8Gated", device, ProductOf(args, rows)));
  if (args.y.empty()) return absl::OkStatus();
  if (device == DeviceType::kCuda && (tokens > kFp8GatedTokens || !TakesShape(inputs, outputs))) {
    return absl::UnimplementedError(
        absl::StrCat("Fp8Gated: no kernel for ", tokens, " tokens of ", inputs, " inputs and ",
                     outputs, " outputs, want at most ", kFp8GatedTokens, ", a multiple of ",
                     kFp8GemmBlock, " and one of ", kOutputsTile));
  }
  return RunOnDevice(kFp8Gated, ctx, args);
}

}  // namespace millrace
