#include "engine/layers/latent_attention_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/layers/head_view.h"
#include "kernels/core/status.h"
#include "kernels/latent_append/latent_append.h"
#include "kernels/latent_attention/latent_attention.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/latent_rope/latent_rope.h"

namespace millrace {
namespace {

// This rank's part of `count` things that all ranks must have equally many of.
absl::StatusOr<Range> EvenPart(const char* what, int64_t count, const std::string& prefix,
                               const LoadContext& ctx) {
  if (count % ctx.size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": tensor parallel size ", ctx.size,
                                                   " does not divide the ", count, " ", what));
  }
  const int64_t part = count / ctx.size;
  return Range{ctx.rank * part, (ctx.rank + 1) * part};
}

Range Times(Range range, int64_t size) { return {range.begin * size, range.end * size}; }

// Index keys are never FP8 rows: those are of another width. After FP4 they are bf16 values.
DType KeyDType(DType kv_dtype) { return kv_dtype == DType::kU8 ? DType::kBF16 : kv_dtype; }

}  // namespace

absl::StatusOr<LatentAttentionLayer> LatentAttentionLayer::Load(const LatentAttentionConfig& config,
                                                                const std::string& prefix,
                                                                LoadContext& ctx) {
  ASSIGN_OR_RETURN(const Range heads, EvenPart("attention heads", config.num_heads, prefix, ctx));
  ASSIGN_OR_RETURN(const Range groups, EvenPart("output groups", config.o_groups, prefix, ctx));
  const int64_t d = config.head_dim;
  const int64_t hidden = config.hidden_size;
  const int64_t o_inputs = config.o_groups * config.o_rank;
  LatentAttentionLayer layer;
  layer.config_ = config;
  layer.heads_ = heads.size();
  layer.groups_ = groups.size();
  ASSIGN_OR_RETURN(layer.wq_a_, StoredLinearLayer::Load(
                                    WholeMatrix(prefix + ".wq_a", config.q_rank, hidden), ctx));
  ASSIGN_OR_RETURN(layer.q_norm_,
                   NormLayer::Load(prefix + ".q_norm.weight", config.q_rank, config.norm_eps, ctx));
  ASSIGN_OR_RETURN(layer.wq_b_, StoredLinearLayer::Load({.prefix = prefix + ".wq_b",
                                                         .rows = config.num_heads * d,
                                                         .cols = config.q_rank,
                                                         .row_part = Times(heads, d),
                                                         .col_part = {0, config.q_rank}},
                                                        ctx));
  ASSIGN_OR_RETURN(layer.wkv_,
                   StoredLinearLayer::Load(WholeMatrix(prefix + ".wkv", d, hidden), ctx));
  ASSIGN_OR_RETURN(layer.kv_norm_,
                   NormLayer::Load(prefix + ".kv_norm.weight", d, config.norm_eps, ctx));
  ASSIGN_OR_RETURN(
      layer.sinks_,
      ctx.weights.Load(VectorPart(prefix + ".attn_sink", config.num_heads, heads), DType::kF32));
  // The published inference dequantises this one and leaves its activations alone.
  LoadContext unrounded = ctx;
  unrounded.rounding = ActivationRounding::kNone;
  const int64_t group_inputs = config.num_heads / config.o_groups * d;
  ASSIGN_OR_RETURN(layer.wo_a_, StoredLinearLayer::Load({.prefix = prefix + ".wo_a",
                                                         .rows = o_inputs,
                                                         .cols = group_inputs,
                                                         .row_part = Times(groups, config.o_rank),
                                                         .col_part = {0, group_inputs}},
                                                        unrounded));
  ASSIGN_OR_RETURN(layer.wo_b_,
                   StoredRowParallelLinear::Load({.prefix = prefix + ".wo_b",
                                                  .rows = hidden,
                                                  .cols = o_inputs,
                                                  .row_part = {0, hidden},
                                                  .col_part = Times(groups, config.o_rank)},
                                                 ctx));
  RETURN_IF_ERROR(layer.LoadCompressors(prefix, ctx));
  return layer;
}

absl::Status LatentAttentionLayer::LoadCompressors(const std::string& prefix, LoadContext& ctx) {
  if (config_.compress_ratio == 0) return absl::OkStatus();
  const float eps = static_cast<float>(config_.norm_eps);
  ASSIGN_OR_RETURN(compressor_, CompressorLayer::Load({.hidden_size = config_.hidden_size,
                                                       .shape = compress_shape(),
                                                       .norm_eps = eps},
                                                      prefix + ".compressor", ctx));
  if (!config_.index.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(indexer_, IndexerLayer::Load({.hidden_size = config_.hidden_size,
                                                 .q_rank = config_.q_rank,
                                                 .heads = config_.index->heads,
                                                 .topk = config_.index->topk,
                                                 .shape = index_shape(),
                                                 .norm_eps = eps,
                                                 .hadamard_fp4 = config_.index->hadamard_fp4},
                                                prefix + ".indexer", ctx));
  return absl::OkStatus();
}

KvCompressShape LatentAttentionLayer::compress_shape() const {
  return {.ratio = config_.compress_ratio,
          .dim = config_.head_dim,
          .overlap = config_.index.has_value()};
}

KvCompressShape LatentAttentionLayer::index_shape() const {
  return {.ratio = config_.compress_ratio, .dim = config_.index->head_dim, .overlap = true};
}

LayerCacheSpec LatentAttentionLayer::cache_rows() const {
  const DType dtype = config_.kv_dtype;
  const int64_t width = LatentRowWidth(dtype, config_.head_dim);
  LayerCacheSpec rows = {RowStore{"window", /*tokens_per_row=*/1, /*heads=*/1, width, dtype}};
  if (!compressor_.has_value()) return rows;
  rows.push_back(CompressedRows("compressed", compress_shape(), width, dtype));
  if (!indexer_.has_value()) return rows;
  rows.push_back(CompressorCarry("carry", compress_shape(), kBlockTokens));
  rows.push_back(CompressedRows("index key", index_shape(), index_shape().dim, KeyDType(dtype)));
  rows.push_back(CompressorCarry("index carry", index_shape(), kBlockTokens));
  return rows;
}

std::vector<SlotStore> LatentAttentionLayer::slot_stores() const {
  std::vector<SlotStore> stores;
  if (compressor_.has_value()) stores.push_back(CompressorState("window state", compress_shape()));
  if (indexer_.has_value()) stores.push_back(CompressorState("index state", index_shape()));
  return stores;
}

const TensorView& LatentAttentionLayer::rows(const ForwardContext& ctx, RowStoreIndex index) const {
  return ctx.cache.store(config_.cache_layer, index);
}

absl::StatusOr<LatentAttentionLayer::Activations> LatentAttentionLayer::Take(WorkspaceScope& scope,
                                                                             const OpContext& op,
                                                                             DType dtype,
                                                                             int64_t tokens) const {
  const int64_t q_width = heads_ * config_.head_dim;
  Activations a;
  ASSIGN_OR_RETURN(a.qr, TakeActivation(scope, op, dtype, tokens, config_.q_rank));
  ASSIGN_OR_RETURN(a.q, TakeActivation(scope, op, dtype, tokens, q_width));
  ASSIGN_OR_RETURN(a.kv, TakeActivation(scope, op, dtype, tokens, config_.head_dim));
  ASSIGN_OR_RETURN(a.attended, TakeActivation(scope, op, dtype, tokens, q_width));
  ASSIGN_OR_RETURN(a.grouped, TakeActivation(scope, op, dtype, tokens, groups_ * config_.o_rank));
  if (!indexer_.has_value()) return a;
  ASSIGN_OR_RETURN(a.selected, TakeActivation(scope, op, DType::kI32, tokens, indexer_->topk()));
  return a;
}

absl::Status LatentAttentionLayer::MakeQueries(const OpContext& op, const ForwardBatch& batch,
                                               const TensorView& inv_freq, const TensorView& x,
                                               const Activations& a) const {
  RETURN_IF_ERROR(wq_a_.Forward(op, x, a.qr));
  RETURN_IF_ERROR(q_norm_.Forward(op, a.qr, a.qr));
  RETURN_IF_ERROR(wq_b_.Forward(op, a.qr, a.q));
  return LatentRope(op, {.x = HeadView(a.q, config_.head_dim),
                         .positions = batch.positions,
                         .inv_freq = inv_freq,
                         .norm_eps = static_cast<float>(config_.norm_eps)});
}

absl::Status LatentAttentionLayer::AppendLatents(ForwardContext& ctx, const ForwardBatch& batch,
                                                 const TensorView& inv_freq, const TensorView& x,
                                                 const Activations& a) const {
  RETURN_IF_ERROR(wkv_.Forward(ctx.op, x, a.kv));
  RETURN_IF_ERROR(kv_norm_.Forward(ctx.op, a.kv, a.kv));
  RETURN_IF_ERROR(LatentRope(
      ctx.op,
      {.x = HeadView(a.kv, config_.head_dim), .positions = batch.positions, .inv_freq = inv_freq}));
  return LatentAppend(ctx.op,
                      {.rows = a.kv, .slots = batch.cache_slots, .store = rows(ctx, kWindowRows)});
}

absl::Status LatentAttentionLayer::Compress(ForwardContext& ctx, const ForwardBatch& batch,
                                            const TensorView& inv_freq, const TensorView& x,
                                            const Activations& a) const {
  if (!compressor_.has_value()) return absl::OkStatus();
  const int32_t layer = config_.cache_layer;
  CompressorCache cache = {.rows = rows(ctx, kCompressedRows),
                           .state = ctx.cache.slot_store(layer, kState)};
  if (indexer_.has_value()) cache.carry = rows(ctx, kCarry);
  RETURN_IF_ERROR(compressor_->Forward(ctx.op, batch, inv_freq, x, cache));
  if (!indexer_.has_value()) return absl::OkStatus();
  const CompressorCache keys = {.rows = rows(ctx, kIndexKeys),
                                .state = ctx.cache.slot_store(layer, kIndexState),
                                .carry = rows(ctx, kIndexCarry)};
  return indexer_->Forward(ctx.op, batch, {.x = x, .qr = a.qr, .inv_freq = inv_freq}, keys,
                           a.selected);
}

absl::Status LatentAttentionLayer::Attend(ForwardContext& ctx, const ForwardBatch& batch,
                                          const Activations& a) const {
  LatentAttentionArgs args;
  args.q = HeadView(a.q, config_.head_dim);
  args.window_rows = rows(ctx, kWindowRows);
  if (compressor_.has_value()) args.compressed_rows = rows(ctx, kCompressedRows);
  if (indexer_.has_value()) args.selected = a.selected;
  args.sinks = sinks_.view;
  args.batch = PagedBatchOf(batch);
  args.out = HeadView(a.attended, config_.head_dim);
  args.window = config_.window;
  args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.head_dim)));
  return LatentAttention(ctx.op, args);
}

absl::Status LatentAttentionLayer::Project(ForwardContext& ctx, const Activations& a,
                                           const TensorView& out) const {
  const int64_t inputs = wo_a_.inputs();
  for (int64_t g = 0; g < groups_; ++g) {
    const Range outputs = {g * config_.o_rank, (g + 1) * config_.o_rank};
    RETURN_IF_ERROR(wo_a_.ForwardRows(ctx.op, outputs,
                                      a.attended.Cols(g * inputs, (g + 1) * inputs),
                                      a.grouped.Cols(outputs.begin, outputs.end)));
  }
  return wo_b_.Forward(ctx, a.grouped, out);
}

absl::Status LatentAttentionLayer::Forward(ForwardContext& ctx, const ForwardBatch& batch,
                                           const TensorView& inv_freq, const TensorView& x,
                                           const TensorView& out) const {
  WorkspaceScope scope(ctx.op.workspace);
  ASSIGN_OR_RETURN(const Activations a, Take(scope, ctx.op, x.dtype, batch.num_tokens()));
  RETURN_IF_ERROR(MakeQueries(ctx.op, batch, inv_freq, x, a));
  RETURN_IF_ERROR(AppendLatents(ctx, batch, inv_freq, x, a));
  RETURN_IF_ERROR(Compress(ctx, batch, inv_freq, x, a));
  RETURN_IF_ERROR(Attend(ctx, batch, a));
  // Rows are keys and values in one, so what was summed is rotated as the keys are.
  RETURN_IF_ERROR(LatentRope(ctx.op, {.x = HeadView(a.attended, config_.head_dim),
                                      .positions = batch.positions,
                                      .inv_freq = inv_freq,
                                      .inverse = true}));
  return Project(ctx, a, out);
}

int64_t LatentAttentionLayer::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const DType dtype = ActivationDType(device.type());
  const int64_t t = limits.tokens;
  const int64_t q_width = heads_ * config_.head_dim;
  int64_t own = ActivationBytes(dtype, t, config_.q_rank) + 2 * ActivationBytes(dtype, t, q_width) +
                ActivationBytes(dtype, t, config_.head_dim) +
                ActivationBytes(dtype, t, groups_ * config_.o_rank);
  int64_t inner = LatentAttentionWorkspaceBytes(device, heads_, config_.head_dim);
  for (const StoredLinearLayer* linear : {&wq_a_, &wq_b_, &wkv_, &wo_a_}) {
    inner = std::max(inner, linear->WorkspaceBytes(device));
  }
  inner = std::max(inner, wo_b_.WorkspaceBytes(device));
  if (compressor_.has_value()) inner = std::max(inner, compressor_->WorkspaceBytes(device, limits));
  if (indexer_.has_value()) {
    own += ActivationBytes(DType::kI32, t, indexer_->topk());
    inner = std::max(inner, indexer_->WorkspaceBytes(device, limits));
  }
  return own + inner;
}

}  // namespace millrace
