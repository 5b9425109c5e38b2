#include "kernels/fp8_gated/fp8_gated.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gated/fp8_gated_impl.h"
#include "kernels/swiglu/swiglu.h"

namespace millrace {
namespace {

constexpr OpTable<Fp8GatedArgs> kFp8Gated = {
    .op = "Fp8Gated", .cpu = Fp8GatedCpu, .cuda = Fp8GatedCuda};

constexpr int64_t kOutputsTile = 16;

bool TakesShape(int64_t inputs, int64_t outputs) {
  return inputs > 0 && inputs % kFp8GemmBlock == 0 && outputs % kOutputsTile == 0;
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
  // Of the right shape, so that the rest of the operands are checked.
  const TensorView gate_up = TensorView::Of(args.y.data, DType::kBF16, {tokens, rows}, device);
  RETURN_IF_ERROR(CheckFp8Gemm("Fp8Gated", device, ProductOf(args, gate_up)));
  if (args.y.empty()) return absl::OkStatus();
  if (tokens > kFp8GatedTokens || !TakesShape(inputs, outputs)) {
    return absl::UnimplementedError(
        absl::StrCat("Fp8Gated: no kernel for ", tokens, " tokens of ", inputs, " inputs and ",
                     outputs, " outputs, want at most ", kFp8GatedTokens, ", a multiple of ",
                     kFp8GemmBlock, " and one of ", kOutputsTile));
  }
  return RunOnDevice(kFp8Gated, ctx, args);
}

absl::Status Fp8GatedCpu(const OpContext& ctx, const Fp8GatedArgs& args) {
  const int64_t tokens = args.y.dim(0), outputs = args.y.dim(1);
  WorkspaceScope scope(ctx.workspace);
  const auto take = [&](int64_t columns) -> absl::StatusOr<TensorView> {
    ASSIGN_OR_RETURN(void* const rows, scope.Take(tokens * columns * int64_t{sizeof(float)}));
    return TensorView::Of(rows, DType::kF32, {tokens, columns}, DeviceType::kCpu);
  };
  ASSIGN_OR_RETURN(const TensorView gate_up, take(2 * outputs));
  ASSIGN_OR_RETURN(const TensorView y, take(outputs));
  RETURN_IF_ERROR(Fp8Gemm(ctx, ProductOf(args, gate_up)));
  RETURN_IF_ERROR(Swiglu(ctx, {.x = gate_up, .y = y}));
  for (int64_t t = 0; t < tokens; ++t) {
    const float* const row = y.Rows(t, t + 1).as<float>();
    std::transform(row, row + outputs, args.y.Rows(t, t + 1).as<BFloat16>(), ToBFloat16);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Fp8GatedWorkspaceBytes(Device& device, int64_t max_inputs,
                                               int64_t max_outputs) {
  if (device.type() == DeviceType::kCuda) return 0;
  ASSIGN_OR_RETURN(const int64_t product, Fp8GemmWorkspaceBytes(device, max_inputs));
  constexpr int64_t kAlignment = 256;  // of what is taken
  return kFp8GatedTokens * 3 * max_outputs * int64_t{sizeof(float)} + 2 * kAlignment + product;
}

}  // namespace millrace
