#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"

namespace millrace {
namespace {

constexpr OpTable<Fp8GroupedGemmArgs> kFp8GroupedGemm = {
    .op = "Fp8GroupedGemm", .cpu = Fp8GroupedGemmCpu, .cuda = Fp8GroupedGemmCuda};

int64_t Blocks(int64_t size) { return (size + kFp8GemmBlock - 1) / kFp8GemmBlock; }

}  // namespace

absl::Status Fp8GroupedGemm(const OpContext& ctx, const Fp8GroupedGemmArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound, groups = kUnbound, outputs = kUnbound;
  ShapeChecker checker("Fp8GroupedGemm", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &inputs}, {DType::kU8})
      .Bind("weight", args.weight, {&groups, &outputs, &inputs}, {DType::kU8})
      .Bind("y", args.y, {&tokens, &outputs}, {DType::kF32, DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  const bool masked = args.form == Fp8GroupedRows::kMasked;
  int64_t depth = Blocks(inputs), scale_rows = Blocks(outputs);
  int64_t numbers = masked ? groups : groups + 1;
  checker.Bind("x_scale", args.x_scale, {&depth, &tokens}, {DType::kF32})
      .Bind("weight_scale", args.weight_scale, {&groups, &scale_rows, &depth}, {DType::kF32})
      .Bind("rows", args.rows, {&numbers}, {DType::kI32})
      .Require(!masked || groups == 0 || tokens % groups == 0,
               "masked: x.dim(0) must be a multiple of weight.dim(0)")
      .Require(args.expected_rows >= 0, "expected_rows is negative");
  RETURN_IF_ERROR(checker.status());
  if (groups == 0 || args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kFp8GroupedGemm, ctx, args);
}

int64_t Fp8GroupedGemmWorkspaceBytes(Device& device, int64_t max_inputs) {
  if (device.type() == DeviceType::kCuda) return 0;
  return device.thread_pool()->threads() * max_inputs * int64_t{sizeof(float)};
}

}  // namespace millrace
