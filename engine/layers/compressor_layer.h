// Turns windows of tokens into compressed cache rows. Every rank holds and computes all of it.
#ifndef ENGINE_LAYERS_COMPRESSOR_LAYER_H_
#define ENGINE_LAYERS_COMPRESSOR_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/cache/cache_spec.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_linear_layer.h"
#include "engine/layers/weight_loader.h"
#include "kernels/kv_compress/kv_compress.h"
#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

struct CompressorConfig {
  int64_t hidden_size = 0;
  KvCompressShape shape;
  float norm_eps = 0;
  bool hadamard_fp4 = false;  // of KvCompressArgs
};

// This layer's part of the cache, as KvCompressArgs has it.
struct CompressorCache {
  TensorView rows;
  TensorView state;
  std::optional<TensorView> carry;  // where windows overlap
};

// The batch as the ops of the latent cache take it.
PagedBatch PagedBatchOf(const ForwardBatch& batch);

// Immutable after load.
class CompressorLayer final {
 public:
  CompressorLayer() = default;
  // Weights wkv, wgate, norm and ape below `prefix` ("layers.0.attn.compressor").
  static absl::StatusOr<CompressorLayer> Load(const CompressorConfig& config,
                                              const std::string& prefix, LoadContext& ctx);

  // Writes the rows of the windows that the step completes, and remembers the others. x is
  // [T, hidden]; inv_freq [R / 2] f32.
  absl::Status Forward(const OpContext& op, const ForwardBatch& batch, const TensorView& inv_freq,
                       const TensorView& x, const CompressorCache& cache) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  CompressorConfig config_;
  StoredLinearLayer wkv_, wgate_;
  Weight ape_;   // [ratio, C] f32
  Weight norm_;  // [D]
};

// The stores that a compressor needs.
RowStore CompressedRows(std::string_view name, const KvCompressShape& shape, int64_t width,
                        DType dtype);
// REQUIRES: shape.overlap. `block_tokens`: a sequence starts at multiples of it.
RowStore CompressorCarry(std::string_view name, const KvCompressShape& shape, int32_t block_tokens);
SlotStore CompressorState(std::string_view name, const KvCompressShape& shape);

}  // namespace millrace

#endif  // ENGINE_LAYERS_COMPRESSOR_LAYER_H_
