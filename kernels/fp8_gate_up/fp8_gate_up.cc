#include "kernels/fp8_gate_up/fp8_gate_up.h"

#include <algorithm>
#include <limits>

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/fp8_gate_up/fp8_gate_up_impl.h"
#include "kernels/swiglu_quantize/swiglu_quantize.h"

namespace millrace {
namespace {

constexpr OpTable<Fp8GateUpArgs> kFp8GateUp = {
    .op = "Fp8GateUp", .cpu = Fp8GateUpByParts, .cuda = Fp8GateUpCuda};

// Tokens that go through the workspace at a time; 4 of them begin on 16 bytes of their scales.
constexpr int64_t kPartTokens = 128;

// Tokens [begin, end) of the call.
Fp8GateUpArgs PartOf(const Fp8GateUpArgs& args, int64_t begin, int64_t end) {
  Fp8GateUpArgs part = args;
  part.x = args.x.Rows(begin, end);
  part.codes = args.codes.Rows(begin, end);
  if (args.rounding != QuantizeScale::kGiven) part.scale = args.scale.Cols(begin, end);
  if (args.scales == Fp8GemmScales::kBlocks || args.x_scale.dim(0) != 1) {
    part.x_scale = args.x_scale.Cols(begin, end);
  }
  return part;
}

}  // namespace

absl::Status Fp8GateUp(const OpContext& ctx, const Fp8GateUpArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound, rows = kUnbound;
  ShapeChecker checker("Fp8GateUp", ctx.device.type());
  checker.Bind("x", args.x, {&tokens, &inputs}, {DType::kU8})
      .Bind("weight", args.weight, {&rows, &inputs}, {DType::kU8})
      .Require(rows % (2 * kQuantizeGroup) == 0, "weight.dim(0) must be a multiple of 256");
  RETURN_IF_ERROR(checker.status());
  int64_t outputs = rows / 2, groups = outputs / kQuantizeGroup, one = 1;
  checker.Bind("codes", args.codes, {&tokens, &outputs}, {DType::kU8});
  if (args.rounding == QuantizeScale::kGiven) {
    checker.Bind("scale", args.scale, {&one}, {DType::kF32});
  } else {
    checker.Bind("scale", args.scale, {&groups, &tokens}, {DType::kF32});
  }
  RETURN_IF_ERROR(checker.status());
  // y of the right shape, so that the rest of the operands are checked.
  TensorView y = TensorView::Of(args.codes.data, DType::kF32, {tokens, rows}, ctx.device.type());
  RETURN_IF_ERROR(CheckFp8Gemm("Fp8GateUp", ctx.device.type(), ProductOf(args, y)));
  if (args.codes.empty()) return absl::OkStatus();
  return RunOnDevice(kFp8GateUp, ctx, args);
}

absl::Status Fp8GateUpByParts(const OpContext& ctx, const Fp8GateUpArgs& args) {
  const int64_t tokens = args.x.dim(0), outputs = args.codes.dim(1);
  for (int64_t begin = 0; begin < tokens; begin += kPartTokens) {
    const int64_t end = std::min(begin + kPartTokens, tokens);
    const Fp8GateUpArgs part = PartOf(args, begin, end);
    WorkspaceScope scope(ctx.workspace);
    ASSIGN_OR_RETURN(void* const sums,
                     scope.Take((end - begin) * 2 * outputs * int64_t{sizeof(float)}));
    const TensorView y =
        TensorView::Of(sums, DType::kF32, {end - begin, 2 * outputs}, ctx.device.type());
    RETURN_IF_ERROR(Fp8Gemm(ctx, ProductOf(part, y)));
    RETURN_IF_ERROR(SwigluQuantize(ctx, {.x = y,
                                         .codes = part.codes,
                                         .scale = part.scale,
                                         .unit = UnitOf(part),
                                         .rounding = part.rounding}));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Fp8GateUpLeastTokens(Device& device, int64_t inputs, int64_t outputs) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const bool fits = inputs > 0 && inputs % 16 == 0 && outputs > 0 && outputs % kQuantizeGroup == 0;
  if (device.type() != DeviceType::kCuda || !fits) return kNever;
  ASSIGN_OR_RETURN(const DeviceProperties properties, device.Properties());
  if (properties.compute_capability != kFp8GateUpCapability) return kNever;
  // Tiles of 128 tokens by a group.
  const int64_t columns = outputs / kQuantizeGroup;
  const int64_t rows = (properties.multiprocessors + columns - 1) / columns;
  return std::max(kFp8GateUpFewTokens, (rows - 1) * 128) + 1;
}

absl::StatusOr<int64_t> Fp8GateUpWorkspaceBytes(Device& device, int64_t max_inputs,
                                                int64_t max_outputs) {
  ASSIGN_OR_RETURN(const int64_t product, Fp8GemmWorkspaceBytes(device, max_inputs));
  constexpr int64_t kAlignment = 256;  // of what is taken
  const int64_t sums = kPartTokens * 2 * max_outputs * int64_t{sizeof(float)};
  const int64_t activation = SwigluQuantizeWorkspaceBytes(DType::kF32, kPartTokens, max_outputs);
  return sums + kAlignment + std::max(product, activation);
}

}  // namespace millrace
