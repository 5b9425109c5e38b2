#include "kernels/quantize/quantize.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/quantize/quantize_impl.h"

namespace millrace {
namespace {

constexpr OpTable<QuantizeArgs> kQuantize = {
    .op = "Quantize", .cpu = QuantizeCpu, .cuda = QuantizeCuda};

void BindScale(ShapeChecker& checker, const QuantizeArgs& args, int64_t tokens, int64_t size) {
  int64_t groups = (size + kQuantizeGroup - 1) / kQuantizeGroup;
  int64_t one = 1;
  switch (args.unit) {
    case QuantizeUnit::kGroup:
      checker.Bind("scale", args.scale, {&groups, &tokens}, {DType::kF32});
      return;
    case QuantizeUnit::kToken:
      checker.Bind("scale", args.scale, {&tokens}, {DType::kF32});
      return;
    case QuantizeUnit::kTensor:
      checker.Bind("scale", args.scale, {&one}, {DType::kF32});
      return;
  }
}

}  // namespace

absl::Status Quantize(const OpContext& ctx, const QuantizeArgs& args) {
  int64_t tokens = kUnbound, size = kUnbound;
  ShapeChecker checker("Quantize", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &size}, {DType::kF32, DType::kBF16})
      .Bind("codes", args.codes, {&tokens, &size}, {DType::kU8});
  RETURN_IF_ERROR(checker.status());
  BindScale(checker, args, tokens, size);
  RETURN_IF_ERROR(checker.status());
  if (args.scale.empty()) return absl::OkStatus();
  return RunOnDevice(kQuantize, ctx, args);
}

}  // namespace millrace
