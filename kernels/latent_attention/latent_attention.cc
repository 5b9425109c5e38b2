#include "kernels/latent_attention/latent_attention.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/latent_attention/latent_attention_impl.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

constexpr OpTable<LatentAttentionArgs> kLatentAttention = {
    .op = "LatentAttention", .cpu = LatentAttentionCpu, .cuda = LatentAttentionCuda};

// Besides the store itself, which CheckLatentStore covers.
void CheckCompressed(ShapeChecker& checker, const LatentAttentionArgs& args) {
  const TensorView& rows = *args.compressed_rows;
  checker
      .Require(rows.dtype == args.window_rows.dtype,
               "compressed_rows must have the dtype of window_rows")
      .Require(rows.dim(0) == args.window_rows.dim(0),
               "compressed_rows must have as many pages as window_rows")
      .Require(rows.dim(2) >= 1 && args.window_rows.dim(2) % rows.dim(2) == 0,
               "compressed_rows: rows of a page must divide the page's tokens");
}

}  // namespace

absl::Status LatentAttention(const OpContext& ctx, const LatentAttentionArgs& args) {
  int64_t tokens = kUnbound, heads = kUnbound, dim = kUnbound, chosen = kUnbound;
  ShapeChecker checker("LatentAttention", ctx.device.type());
  checker.Bind("q", args.q, {&tokens, &heads, &dim}, {DType::kF32, DType::kBF16})
      .Bind("out", args.out, {&tokens, &heads, &dim}, {args.q.dtype})
      .Bind("sinks", args.sinks, {&heads}, {DType::kF32})
      .Require(dim >= 1 && dim % 16 == 0, "heads must have a multiple of 16 channels")
      .Require(args.window >= 1, "window must be at least 1");
  CheckLatentStore(checker, "window_rows", args.window_rows, dim);
  if (args.compressed_rows) {
    CheckLatentStore(checker, "compressed_rows", *args.compressed_rows, dim);
    CheckCompressed(checker, args);
  }
  if (args.selected) {
    checker.Require(args.compressed_rows.has_value(), "selected needs compressed_rows")
        .Bind("selected", *args.selected, {&tokens, &chosen}, {DType::kI32});
  }
  CheckPagedBatch(checker, args.batch);
  RETURN_IF_ERROR(checker.status());
  if (args.out.empty()) return absl::OkStatus();
  return RunOnDevice(kLatentAttention, ctx, args);
}

}  // namespace millrace
