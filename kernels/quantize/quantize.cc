#include "kernels/quantize/quantize.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/quantize/quantize_impl.h"

namespace millrace {
namespace {

constexpr OpTable<QuantizeArgs> kQuantize = {
    .op = "Quantize", .cpu = QuantizeCpu, .cuda = QuantizeCuda};

// Of codes with `rows` rows of `size`.
void BindScale(ShapeChecker& checker, const QuantizeArgs& args, int64_t rows, int64_t size) {
  int64_t groups = (size + kQuantizeGroup - 1) / kQuantizeGroup;
  int64_t one = 1;
  const auto bind = [&](std::initializer_list<int64_t*> shape) {
    checker.Bind("scale", args.scale, shape, {DType::kF32});
  };
  switch (args.unit) {
    case QuantizeUnit::kGroup:
      return bind({&groups, &rows});
    case QuantizeUnit::kToken:
      return bind({&rows});
    case QuantizeUnit::kChannel:
      return bind({args.transposed ? &rows : &size});
    case QuantizeUnit::kTensor:
      return bind({&one});
  }
}

}  // namespace

absl::Status CheckQuantize(std::string_view op, DeviceType device, const QuantizeArgs& args) {
  int64_t tokens = kUnbound, size = kUnbound;
  ShapeChecker checker(op, device);
  checker.Bind("x", args.x, {&tokens, &size}, {DType::kF32, DType::kBF16});
  int64_t& rows = args.transposed ? size : tokens;
  int64_t& cols = args.transposed ? tokens : size;
  checker.Bind("codes", args.codes, {&rows, &cols}, {DType::kU8})
      .Require(args.rounding != QuantizeScale::kGiven || args.unit == QuantizeUnit::kTensor,
               "a given scale must be the tensor's")
      .Require(!args.transposed || args.unit != QuantizeUnit::kToken,
               "transposed codes cannot have a scale of each token");
  RETURN_IF_ERROR(checker.status());
  BindScale(checker, args, rows, cols);
  return checker.status();
}

absl::Status Quantize(const OpContext& ctx, const QuantizeArgs& args) {
  RETURN_IF_ERROR(CheckQuantize("Quantize", ctx.device.type(), args));
  if (args.scale.empty()) return absl::OkStatus();
  return RunOnDevice(kQuantize, ctx, args);
}

}  // namespace millrace
