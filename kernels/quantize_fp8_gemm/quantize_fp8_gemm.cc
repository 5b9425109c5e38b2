#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm_impl.h"

namespace millrace {
namespace {

constexpr OpTable<QuantizeFp8GemmArgs> kQuantizeFp8Gemm = {
    .op = "QuantizeFp8Gemm", .cpu = nullptr, .cuda = QuantizeFp8GemmCuda};

bool TakesInputs(int64_t inputs) {
  return inputs > 0 && inputs <= kQuantizeFp8GemmInputs && inputs % kFp8GemmBlock == 0;
}

}  // namespace

Fp8GemmArgs ProductOf(const QuantizeFp8GemmArgs& args) {
  const int64_t tokens = args.x.dim(0);
  return {.x = TensorView::Of(args.x.data, DType::kU8, {tokens, args.x.dim(1)}, args.x.device),
          // What this op has no use for: the scale is the kernel's own, flags none.
          .x_scale = TensorView::Of(args.y.data, DType::kF32, {tokens}, args.y.device),
          .weight = args.weight,
          .weight_scale = args.weight_scale,
          .y = args.y,
          .flags = TensorView::Of(args.y.data, DType::kI32, {0}, args.y.device),
          .scales = Fp8GemmScales::kVectors,
          .bias = args.bias};
}

absl::StatusOr<bool> QuantizeFp8GemmCovers(Device& device, int64_t inputs, int64_t outputs) {
  if (device.type() != DeviceType::kCuda || !TakesInputs(inputs)) return false;
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  const int64_t most = kQuantizeFp8GemmTile * properties.multiprocessors;
  // Of fewer, Fp8Gemm's smaller tiles are.
  return properties.compute_capability == kQuantizeFp8GemmCapability && outputs <= most &&
         2 * outputs > most;
}

absl::Status QuantizeFp8Gemm(const OpContext& ctx, const QuantizeFp8GemmArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound;
  const DeviceType device = ctx.device.type();
  ShapeChecker checker("QuantizeFp8Gemm", device);
  checker.Bind("x", args.x, {&tokens, &inputs}, {DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  RETURN_IF_ERROR(CheckFp8Gemm("QuantizeFp8Gemm", device, ProductOf(args)));
  if (args.y.empty()) return absl::OkStatus();
  if (device == DeviceType::kCuda && (tokens > 1 || !TakesInputs(inputs))) {
    return absl::UnimplementedError(absl::StrCat(
        "QuantizeFp8Gemm: no kernel for ", tokens, " tokens of ", inputs,
        " inputs, want 1 and a multiple of ", kFp8GemmBlock, " up to ", kQuantizeFp8GemmInputs));
  }
  return RunOnDevice(kQuantizeFp8Gemm, ctx, args);
}

}  // namespace millrace
