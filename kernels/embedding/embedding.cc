#include "kernels/embedding/embedding.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/embedding/embedding_impl.h"

namespace millrace {
namespace {

constexpr OpTable<EmbeddingArgs> kEmbedding = {
    .op = "Embedding", .cpu = EmbeddingCpu, .cuda = EmbeddingCuda};

}  // namespace

absl::Status Embedding(const OpContext& ctx, const EmbeddingArgs& args) {
  int64_t tokens = kUnbound, rows = kUnbound, width = kUnbound;
  int64_t slots = kUnbound;
  ShapeChecker checker("Embedding", ctx.device.type());
  checker.Bind("ids", args.ids, {&tokens}, {DType::kI32});
  if (args.last_tokens) checker.Bind("last_tokens", *args.last_tokens, {&slots}, {DType::kI32});
  checker.Bind("table", args.table, {&rows, &width}, {DType::kF32, DType::kBF16})
      .Bind("y", args.y, {&tokens, &width}, {DType::kF32, DType::kBF16})
      .Require(args.first_id >= 0, "first_id must not be negative");
  RETURN_IF_ERROR(checker.status());
  if (args.y.empty()) return absl::OkStatus();
  return RunOnDevice(kEmbedding, ctx, args);
}

}  // namespace millrace
