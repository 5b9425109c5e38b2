#include "kernels/swiglu/swiglu.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {
namespace {

constexpr OpTable<SwigluArgs> kSwiglu = {.op = "Swiglu", .cpu = SwigluCpu, .cuda = nullptr};

}  // namespace

absl::Status Swiglu(const OpContext& ctx, const SwigluArgs& args) {
  int64_t tokens = kUnbound, width = kUnbound;
  ShapeChecker checker("Swiglu", ctx.device.type());
  checker.Bind("out", args.out, {&tokens, &width}, {DType::kF32, DType::kBF16});
  int64_t both = 2 * width;
  checker.Bind("gate_up", args.gate_up, {&tokens, &both}, {args.out.dtype});
  RETURN_IF_ERROR(checker.status());
  if (args.out.empty()) return absl::OkStatus();
  return RunOnDevice(kSwiglu, ctx, args);
}

}  // namespace millrace
