#include "kernels/add/add.h"

#include "kernels/add/add_impl.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr OpTable<AddArgs> kRows = {.op = "Add", .cpu = AddCpu, .cuda = AddCuda};

}  // namespace

absl::Status Add(const OpContext& ctx, const AddArgs& args) {
  int64_t tokens = kUnbound, width = kUnbound;
  ShapeChecker checker("Add", ctx.device.type());
  checker.Bind("a", args.a, {&tokens, &width}, {DType::kF32, DType::kBF16})
      .Bind("b", args.b, {&tokens, &width}, {DType::kF32, DType::kBF16})
      .Bind("y", args.y, {&tokens, &width}, {DType::kF32, DType::kBF16});
  RETURN_IF_ERROR(checker.status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kRows, ctx, args);
}

}  // namespace millrace
