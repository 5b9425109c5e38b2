#include "kernels/embedding/embedding.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/embedding/embedding_impl.h"

namespace millrace {
namespace {

constexpr OpTable<EmbeddingArgs> kEmbedding = {
    .op = "Embedding", .cpu = EmbeddingCpu, .cuda = nullptr};

}  // namespace

absl::Status Embedding(const OpContext& ctx, const EmbeddingArgs& args) {
  int64_t tokens = kUnbound, rows = kUnbound, width = kUnbound;
  RETURN_IF_ERROR(ShapeChecker("Embedding", ctx.device.type())
                      .Bind("ids", args.ids, {&tokens}, {DType::kI32})
                      .Bind("table", args.table, {&rows, &width}, {DType::kF32, DType::kBF16})
                      .Bind("out", args.out, {&tokens, &width}, {DType::kF32, DType::kBF16})
                      .Require(args.vocab_begin >= 0, "vocab_begin is negative")
                      .status());
  if (args.out.empty()) return absl::OkStatus();
  return RunOnDevice(kEmbedding, ctx, args);
}

}  // namespace millrace
