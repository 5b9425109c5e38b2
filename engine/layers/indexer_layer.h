// Picks the compressed entries that a token attends to. Every rank holds and computes all of it, so
// that all pick the same.
#ifndef ENGINE_LAYERS_INDEXER_LAYER_H_
#define ENGINE_LAYERS_INDEXER_LAYER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/compressor_layer.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_linear_layer.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct IndexerConfig {
  int64_t hidden_size = 0;
  int64_t q_rank = 0;  // of the query's input
  int64_t heads = 0;
  int64_t topk = 0;
  KvCompressShape shape;  // of the keys; dim is a head's too
  float norm_eps = 0;
  bool hadamard_fp4 = false;  // queries and keys go through ApplyHadamardFp4
};

// A step's activations. inv_freq: [R / 2] f32.
struct IndexerInputs {
  TensorView x;   // [T, hidden]
  TensorView qr;  // [T, q_rank]
  TensorView inv_freq;
};

// Immutable after load.
class IndexerLayer final {
 public:
  IndexerLayer() = default;
  // Weights wq_b, weights_proj and those of the compressor below `prefix`
  // ("layers.0.attn.indexer").
  static absl::StatusOr<IndexerLayer> Load(const IndexerConfig& config, const std::string& prefix,
                                           LoadContext& ctx);

  int64_t topk() const { return config_.topk; }

  // Writes the keys of the windows that the step completes and fills `selected` [T, topk] i32 as
  // IndexSelect does.
  absl::Status Forward(const OpContext& op, const ForwardBatch& batch, const IndexerInputs& inputs,
                       const CompressorCache& cache, const TensorView& selected) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  IndexerConfig config_;
  StoredLinearLayer wq_b_, weights_proj_;
  CompressorLayer compressor_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_INDEXER_LAYER_H_
