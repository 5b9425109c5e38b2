#include "engine/layers/indexer_layer.h"

#include <algorithm>
#include <cmath>

#include "engine/layers/head_view.h"
#include "kernels/core/status.h"
#include "kernels/index_select/index_select.h"
#include "kernels/latent_rope/latent_rope.h"

namespace millrace {

absl::StatusOr<IndexerLayer> IndexerLayer::Load(const IndexerConfig& config,
                                                const std::string& prefix, LoadContext& ctx) {
  IndexerLayer layer;
  layer.config_ = config;
  ASSIGN_OR_RETURN(
      layer.wq_b_,
      StoredLinearLayer::Load(
          WholeMatrix(prefix + ".wq_b", config.heads * config.shape.dim, config.q_rank), ctx));
  ASSIGN_OR_RETURN(
      layer.weights_proj_,
      StoredLinearLayer::Load(
          WholeMatrix(prefix + ".weights_proj", config.heads, config.hidden_size), ctx));
  ASSIGN_OR_RETURN(layer.compressor_, CompressorLayer::Load({.hidden_size = config.hidden_size,
                                                             .shape = config.shape,
                                                             .norm_eps = config.norm_eps,
                                                             .hadamard_fp4 = config.hadamard_fp4},
                                                            prefix + ".compressor", ctx));
  return layer;
}

absl::Status IndexerLayer::Forward(const OpContext& op, const ForwardBatch& batch,
                                   const IndexerInputs& inputs, const CompressorCache& cache,
                                   const TensorView& selected) const {
  RETURN_IF_ERROR(compressor_.Forward(op, batch, inputs.inv_freq, inputs.x, cache));
  WorkspaceScope scope(op.workspace);
  const int64_t tokens = batch.num_tokens();
  const int64_t dim = config_.shape.dim;
  ASSIGN_OR_RETURN(const TensorView rows,
                   TakeActivation(scope, op, inputs.x.dtype, tokens, config_.heads * dim));
  ASSIGN_OR_RETURN(const TensorView weights,
                   TakeActivation(scope, op, DType::kF32, tokens, config_.heads));
  const TensorView q = HeadView(rows, dim);
  RETURN_IF_ERROR(wq_b_.Forward(op, inputs.qr, rows));
  RETURN_IF_ERROR(
      LatentRope(op, {.x = q, .positions = batch.positions, .inv_freq = inputs.inv_freq}));
  RETURN_IF_ERROR(weights_proj_.Forward(op, inputs.x, weights));
  const double channels = static_cast<double>(dim * config_.heads);
  return IndexSelect(op, {.q = q,
                          .weights = weights,
                          .keys = cache.rows,
                          .batch = PagedBatchOf(batch),
                          .selected = selected,
                          .ratio = config_.shape.ratio,
                          .scale = static_cast<float>(1.0 / std::sqrt(channels)),
                          .hadamard_fp4 = config_.hadamard_fp4});
}

int64_t IndexerLayer::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  const int64_t dim = config_.shape.dim;
  const int64_t entries = limits.sequence_tokens / config_.shape.ratio;
  const int64_t ops = std::max({wq_b_.WorkspaceBytes(device), weights_proj_.WorkspaceBytes(device),
                                IndexSelectWorkspaceBytes(device, config_.heads, dim, entries)});
  const int64_t own =
      ActivationBytes(ActivationDType(device.type()), limits.tokens, config_.heads * dim) +
      ActivationBytes(DType::kF32, limits.tokens, config_.heads) + ops;
  return std::max(own, compressor_.WorkspaceBytes(device, limits));
}

}  // namespace millrace
