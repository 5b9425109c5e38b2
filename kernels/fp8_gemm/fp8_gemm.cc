#include "kernels/fp8_gemm/fp8_gemm.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {
namespace {

constexpr OpTable<Fp8GemmArgs> kFp8Gemm = {.op = "Fp8Gemm", .cpu = Fp8GemmCpu, .cuda = Fp8GemmCuda};

struct Sizes {
  int64_t tokens = kUnbound, inputs = kUnbound, outputs = kUnbound;
};

void BindScales(ShapeChecker& checker, const Fp8GemmArgs& args, Sizes s) {
  if (args.scales == Fp8GemmScales::kBlocks) {
    int64_t depth = (s.inputs + kFp8GemmBlock - 1) / kFp8GemmBlock;
    int64_t rows = (s.outputs + kFp8GemmBlock - 1) / kFp8GemmBlock;
    checker.Bind("x_scale", args.x_scale, {&depth, &s.tokens}, {DType::kF32})
        .Bind("weight_scale", args.weight_scale, {&rows, &depth}, {DType::kF32});
    return;
  }
  int64_t one = 1;
  const bool of_all = args.x_scale.rank == 1 && args.x_scale.dim(0) == 1;
  const bool of_weight = args.weight_scale.rank == 1 && args.weight_scale.dim(0) == 1;
  checker.Bind("x_scale", args.x_scale, {of_all ? &one : &s.tokens}, {DType::kF32})
      .Bind("weight_scale", args.weight_scale, {of_weight ? &one : &s.outputs}, {DType::kF32});
}

}  // namespace

absl::Status CheckFp8Gemm(std::string_view op, DeviceType device, const Fp8GemmArgs& args) {
  Sizes s;
  ShapeChecker checker(op, device);
  checker.Bind("x", args.x, {&s.tokens, &s.inputs}, {DType::kU8})
      .Bind("weight", args.weight, {&s.outputs, &s.inputs}, {DType::kU8})
      .Bind("y", args.y, {&s.tokens, &s.outputs}, {DType::kF32, DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  BindScales(checker, args, s);
  if (args.bias) checker.Bind("bias", *args.bias, {&s.outputs}, {DType::kF32, DType::kBF16});
  if (args.residual) {
    checker.Bind("residual", *args.residual, {&s.tokens, &s.outputs}, {DType::kF32, DType::kBF16});
  }
  if (device == DeviceType::kCuda) {
    int64_t flags = kUnbound;
    checker.Bind("flags", args.flags, {&flags}, {DType::kI32});
  }
  return checker.status();
}

absl::Status Fp8Gemm(const OpContext& ctx, const Fp8GemmArgs& args) {
  RETURN_IF_ERROR(CheckFp8Gemm("Fp8Gemm", ctx.device.type(), args));
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kFp8Gemm, ctx, args);
}

absl::StatusOr<int64_t> Fp8GemmWorkspaceBytes(Device& device, int64_t max_inputs) {
  if (device.type() == DeviceType::kCpu) {
    return device.thread_pool()->threads() * max_inputs * int64_t{sizeof(float)};
  }
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  return Fp8GemmCudaWorkspaceBytes(properties.multiprocessors);
}

absl::StatusOr<int64_t> Fp8GemmFlags(Device& device) {
  if (device.type() == DeviceType::kCpu) return 0;
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  return Fp8GemmCudaFlags(properties.multiprocessors);
}

}  // namespace millrace
