#include "kernels/gate_up/gate_up.h"

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/gate_up/gate_up_impl.h"
#include "kernels/tile/skinny_shapes.h"

namespace millrace {
namespace {

constexpr OpTable<GateUpArgs> kGateUp = {.op = "GateUp", .cpu = nullptr, .cuda = GateUpCuda};

}  // namespace

bool GateUpCovers(DeviceType device, int64_t tokens, int64_t inputs, int64_t outputs) {
  return device == DeviceType::kCuda && tokens <= 8 && inputs > 0 && inputs % kSkinnyPiece == 0 &&
         outputs % kGateUpBlock == 0;
}

absl::Status GateUp(const OpContext& ctx, const GateUpArgs& args) {
  int64_t tokens = kUnbound, inputs = kUnbound, rows = kUnbound;
  int64_t outputs = args.weight.rank == 2 ? args.weight.dim(0) / 2 : kUnbound;
  RETURN_IF_ERROR(
      ShapeChecker("GateUp", ctx.device.type())
          .Bind("x", args.x, {&tokens, &inputs}, {DType::kBF16})
          .Bind("weight", args.weight, {&rows, &inputs}, {DType::kBF16})
          .Require(rows % (2 * kGateUpBlock) == 0, "weight.dim(0) must be a multiple of 16")
          .Bind("y", args.y, {&tokens, &outputs}, {DType::kBF16})
          .status());
  if (args.y.empty()) return absl::OkStatus();
  const DeviceType device = ctx.device.type();
  if (device == DeviceType::kCuda && !GateUpCovers(device, tokens, inputs, outputs)) {
    return absl::UnimplementedError(
        absl::StrCat("GateUp: no kernel for ", tokens, " tokens of ", inputs,
                     " inputs, want at most 8 of a multiple of ", kSkinnyPiece));
  }
  return RunOnDevice(kGateUp, ctx, args);
}

}  // namespace millrace
