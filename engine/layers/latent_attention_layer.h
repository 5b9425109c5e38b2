// DeepSeek-V4's attention: one latent row a token that is key and value of all heads, a window of
// the last tokens, compressed rows of those before. Query heads and output groups are split over
// the ranks; latents, compressors and indexer are whole on each.
#ifndef ENGINE_LAYERS_LATENT_ATTENTION_LAYER_H_
#define ENGINE_LAYERS_LATENT_ATTENTION_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/cache_spec.h"
#include "engine/layers/compressor_layer.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/indexer_layer.h"
#include "engine/layers/norm_layer.h"
#include "engine/layers/stored_linear_layer.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct LatentAttentionConfig {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t q_rank = 0;
  int64_t o_groups = 0;
  int64_t o_rank = 0;          // of a group
  int64_t window = 0;          // tokens
  int64_t compress_ratio = 0;  // tokens of a compressed row; 0: window rows alone
  // Picks among the compressed rows, which overlap then; none: a token attends to all of them.
  struct Index {
    int64_t heads = 0;
    int64_t head_dim = 0;
    int64_t topk = 0;
    bool hadamard_fp4 = false;  // serving numerics
  };
  std::optional<Index> index;
  double norm_eps = 0;
  DType kv_dtype = DType::kF32;  // of window and compressed rows: f32, bf16, or u8 for FP8 rows
  int32_t cache_layer = 0;       // whose stores of the cache are this layer's
};

// Immutable after load.
class LatentAttentionLayer final {
 public:
  // A sequence starts at multiples of this many tokens, so that pages of any multiple of it can be
  // reused: what crosses such a border lies in the cache.
  static constexpr int32_t kBlockTokens = 128;

  // Weights below `prefix` ("layers.0.attn"). InvalidArgument when the ranks divide heads or groups
  // unevenly; else what the loader reports.
  static absl::StatusOr<LatentAttentionLayer> Load(const LatentAttentionConfig& config,
                                                   const std::string& prefix, LoadContext& ctx);

  // What the layer wants of the cache.
  LayerCacheSpec cache_rows() const;
  std::vector<SlotStore> slot_stores() const;

  // out = attention(x), summed over the ranks; x and out are [T, hidden]. Appends the step to the
  // cache. inv_freq: [R / 2] f32, radians per position.
  absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& inv_freq,
                       const TensorView& x, const TensorView& out) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  // The order of the layer's row stores and slot stores.
  enum RowStoreIndex { kWindowRows, kCompressedRows, kCarry, kIndexKeys, kIndexCarry };
  enum SlotStoreIndex { kState, kIndexState };

  // A step's activations; empty: not needed.
  struct Activations {
    TensorView qr;        // [T, q_rank]
    TensorView q;         // [T, heads of this rank * D]
    TensorView kv;        // [T, D]
    TensorView selected;  // [T, topk] i32
    TensorView attended;  // as q
    TensorView grouped;   // [T, groups of this rank * o_rank]
  };

  LatentAttentionLayer() = default;
  absl::Status LoadCompressors(const std::string& prefix, LoadContext& ctx);
  KvCompressShape compress_shape() const;
  KvCompressShape index_shape() const;

  absl::StatusOr<Activations> Take(WorkspaceScope& scope, const OpContext& op, DType dtype,
                                   int64_t tokens) const;
  absl::Status MakeQueries(const OpContext& op, const ForwardBatch& batch,
                           const TensorView& inv_freq, const TensorView& x,
                           const Activations& a) const;
  absl::Status AppendLatents(ForwardContext& ctx, const ForwardBatch& batch,
                             const TensorView& inv_freq, const TensorView& x,
                             const Activations& a) const;
  absl::Status Compress(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& inv_freq,
                        const TensorView& x, const Activations& a) const;
  absl::Status Attend(ForwardContext& ctx, const ForwardBatch& batch, const Activations& a) const;
  absl::Status Project(ForwardContext& ctx, const Activations& a, const TensorView& out) const;
  const TensorView& rows(const ForwardContext& ctx, RowStoreIndex index) const;

  LatentAttentionConfig config_;
  int64_t heads_ = 0;   // of this rank
  int64_t groups_ = 0;  // of this rank
  StoredLinearLayer wq_a_, wq_b_, wkv_;
  StoredLinearLayer wo_a_;  // the groups' matrices one below the other
  StoredRowParallelLinear wo_b_;
  NormLayer q_norm_, kv_norm_;
  Weight sinks_;  // [heads of this rank] f32
  std::optional<CompressorLayer> compressor_;
  std::optional<IndexerLayer> indexer_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_LATENT_ATTENTION_LAYER_H_
