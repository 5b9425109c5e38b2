#include "engine/layers/compressor_layer.h"

#include <algorithm>

#include "kernels/core/status.h"

namespace millrace {

PagedBatch PagedBatchOf(const ForwardBatch& batch) {
  return {.q_start = batch.q_start, .kv_len = batch.kv_len, .page_table = batch.page_table};
}

absl::StatusOr<CompressorLayer> CompressorLayer::Load(const CompressorConfig& config,
                                                      const std::string& prefix, LoadContext& ctx) {
  const int64_t ratio = config.shape.ratio;
  const int64_t dim = config.shape.dim;
  const int64_t projected = config.shape.projected();
  CompressorLayer layer;
  layer.config_ = config;
  ASSIGN_OR_RETURN(
      layer.wkv_,
      StoredLinearLayer::Load(WholeMatrix(prefix + ".wkv", projected, config.hidden_size), ctx));
  ASSIGN_OR_RETURN(
      layer.wgate_,
      StoredLinearLayer::Load(WholeMatrix(prefix + ".wgate", projected, config.hidden_size), ctx));
  ASSIGN_OR_RETURN(layer.ape_, ctx.weights.Load(MatrixPart(prefix + ".ape", ratio, projected,
                                                           {0, ratio}, {0, projected}),
                                                DType::kF32));
  ASSIGN_OR_RETURN(layer.norm_, ctx.weights.Load(VectorPart(prefix + ".norm.weight", dim, {0, dim}),
                                                 ctx.vector_dtype));
  return layer;
}

absl::Status CompressorLayer::Forward(const OpContext& op, const ForwardBatch& batch,
                                      const TensorView& inv_freq, const TensorView& x,
                                      const CompressorCache& cache) const {
  WorkspaceScope scope(op.workspace);
  const int64_t tokens = batch.num_tokens();
  const int64_t projected = config_.shape.projected();
  ASSIGN_OR_RETURN(const TensorView kv, TakeActivation(scope, op, DType::kF32, tokens, projected));
  ASSIGN_OR_RETURN(const TensorView score,
                   TakeActivation(scope, op, DType::kF32, tokens, projected));
  RETURN_IF_ERROR(wkv_.Forward(op, x, kv));
  RETURN_IF_ERROR(wgate_.Forward(op, x, score));
  return KvCompress(op, {.kv = kv,
                         .score = score,
                         .ape = ape_.view,
                         .norm_weight = norm_.view,
                         .inv_freq = inv_freq,
                         .batch = PagedBatchOf(batch),
                         .state_slots = batch.state_slots,
                         .state = cache.state,
                         .carry = cache.carry,
                         .store = cache.rows,
                         .norm_eps = config_.norm_eps,
                         .hadamard_fp4 = config_.hadamard_fp4});
}

int64_t CompressorLayer::WorkspaceBytes(Device& device, const LargestStep& limits) const {
  return 2 * ActivationBytes(DType::kF32, limits.tokens, config_.shape.projected()) +
         std::max(wkv_.WorkspaceBytes(device), wgate_.WorkspaceBytes(device));
}

RowStore CompressedRows(std::string_view name, const KvCompressShape& shape, int64_t width,
                        DType dtype) {
  return {name, static_cast<int32_t>(shape.ratio), /*heads=*/1, width, dtype};
}

RowStore CompressorCarry(std::string_view name, const KvCompressShape& shape,
                         int32_t block_tokens) {
  return {name, block_tokens, /*heads=*/1, shape.carry_width(), DType::kF32};
}

SlotStore CompressorState(std::string_view name, const KvCompressShape& shape) {
  return {name, shape.state_rows(), shape.state_width(), DType::kF32};
}

}  // namespace millrace
