#include "engine/layers/vocab_parallel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/parallel/shard.h"
#include "kernels/core/status.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/merge_columns/merge_columns.h"

namespace millrace {
namespace {

absl::StatusOr<Range> RowsOf(const VocabConfig& config, const std::string& name,
                             const LoadContext& ctx) {
  if (config.vocab_size < ctx.size) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": tensor parallel size ", ctx.size,
                                                   " exceeds the vocabulary of ",
                                                   config.vocab_size));
  }
  return BalancedRange(config.vocab_size, ctx.size, ctx.rank);
}

absl::StatusOr<Weight> LoadRows(const VocabConfig& config, const std::string& name, Range rows,
                                LoadContext& ctx) {
  return ctx.weights.Load(
      MatrixPart(name, config.vocab_size, config.hidden_size, rows, {0, config.hidden_size}),
      ctx.weight_dtype);
}

}  // namespace

absl::StatusOr<VocabParallelEmbedding> VocabParallelEmbedding::Load(const VocabConfig& config,
                                                                    const std::string& name,
                                                                    LoadContext& ctx) {
  VocabParallelEmbedding layer;
  ASSIGN_OR_RETURN(layer.rows_, RowsOf(config, name, ctx));
  ASSIGN_OR_RETURN(layer.table_, LoadRows(config, name, layer.rows_, ctx));
  return layer;
}

absl::Status VocabParallelEmbedding::Forward(ForwardContext& ctx, const ForwardBatch& batch,
                                             const TensorView& out) const {
  // Ids of other ranks give rows of zeros here.
  RETURN_IF_ERROR(Embedding(ctx.op, {.ids = batch.token_ids,
                                     .last_tokens = batch.last_tokens,
                                     .table = table_.view,
                                     .first_id = static_cast<int32_t>(rows_.begin),
                                     .y = out}));
  return ctx.comm.AllReduceSum(out, ctx.op.stream);
}

absl::StatusOr<LmHead> LmHead::Load(const VocabConfig& config, const std::string& name,
                                    LoadContext& ctx) {
  LmHead layer;
  layer.config_ = config;
  layer.rows_by_rank_ = BalancedSizes(config.vocab_size, ctx.size);
  ASSIGN_OR_RETURN(const Range rows, RowsOf(config, name, ctx));
  ASSIGN_OR_RETURN(layer.own_, LoadRows(config, name, rows, ctx));
  layer.weight_ = layer.own_.view;
  return layer;
}

LmHead LmHead::Tied(const VocabConfig& config, const VocabParallelEmbedding& embedding,
                    const LoadContext& ctx) {
  LmHead layer;
  layer.config_ = config;
  layer.rows_by_rank_ = BalancedSizes(config.vocab_size, ctx.size);
  layer.weight_ = embedding.table();
  return layer;
}

absl::Status LmHead::Forward(ForwardContext& ctx, const TensorView& hidden,
                             const TensorView& logits) const {
  if (ctx.comm.size() == 1) return Linear(ctx.op, {.x = hidden, .weight = weight_, .y = logits});

  WorkspaceScope scope(ctx.op.workspace);
  const int64_t rows = hidden.dim(0);
  ASSIGN_OR_RETURN(const TensorView part,
                   TakeActivation(scope, ctx.op, DType::kF32, rows, weight_.dim(0)));
  RETURN_IF_ERROR(Linear(ctx.op, {.x = hidden, .weight = weight_, .y = part}));
  std::vector<int64_t> counts;
  for (const int64_t columns : rows_by_rank_) counts.push_back(rows * columns);
  if (rows == 1) return ctx.comm.AllGather(part, counts.data(), logits, ctx.op.stream);

  // Rank after rank arrives, each with all rows of its columns; put the columns side by side.
  ASSIGN_OR_RETURN(const TensorView parts,
                   TakeActivation(scope, ctx.op, DType::kF32, rows, config_.vocab_size));
  RETURN_IF_ERROR(ctx.comm.AllGather(part, counts.data(), parts, ctx.op.stream));
  return MergeColumns(ctx.op, {.parts = parts, .columns = rows_by_rank_, .y = logits});
}

int64_t LmHead::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const int64_t linear = LinearWorkspaceBytes(device, config_.hidden_size, weight_.dim(0));
  if (rows_by_rank_.size() == 1) return linear;
  return linear + ActivationBytes(DType::kF32, limits.logit_rows, weight_.dim(0)) +
         ActivationBytes(DType::kF32, limits.logit_rows, config_.vocab_size);
}

}  // namespace millrace
