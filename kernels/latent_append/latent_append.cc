#include "kernels/latent_append/latent_append.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/latent_append/latent_append_impl.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr OpTable<LatentAppendArgs> kLatentAppend = {
    .op = "LatentAppend", .cpu = LatentAppendCpu, .cuda = LatentAppendCuda};

}  // namespace

absl::Status LatentAppend(const OpContext& ctx, const LatentAppendArgs& args) {
  int64_t tokens = kUnbound, dim = kUnbound;
  ShapeChecker checker("LatentAppend", ctx.device.type());
  checker.Bind("rows", args.rows, {&tokens, &dim}, {DType::kF32, DType::kBF16})
      .Bind("slots", args.slots, {&tokens}, {DType::kI64});
  CheckLatentStore(checker, "store", args.store, dim);
  RETURN_IF_ERROR(checker.status());
  if (args.rows.empty()) return absl::OkStatus();
  return RunOnDevice(kLatentAppend, ctx, args);
}

}  // namespace millrace
