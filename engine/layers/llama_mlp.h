// The gated MLP of LLaMA-class models, its columns split over the ranks.
#ifndef ENGINE_LAYERS_LLAMA_MLP_H_
#define ENGINE_LAYERS_LLAMA_MLP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/parallel_linear.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct LlamaMlpConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  bool bias = false;
};

// Immutable after load.
class LlamaMlp final {
 public:
  // Weights gate_proj, up_proj and down_proj below `prefix` ("model.layers.0.mlp").
  // InvalidArgument when there are more ranks than columns.
  static absl::StatusOr<LlamaMlp> Load(const LlamaMlpConfig& config, const std::string& prefix,
                                       LoadContext& ctx);

  // out = this rank's part of down(silu(gate(x)) * up(x)), which the norm that follows sums over
  // the ranks; in is of input_weight() and out [T, hidden].
  absl::Status Forward(ForwardContext& ctx, const LinearInput& in, const TensorView& out) const;
  // What x meets.
  const LinearWeight& input_weight() const { return gate_up_proj_.weight(); }

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  LlamaMlp() = default;
  // y: [T, width], for down_proj_. True if one op made it of `in`.
  absl::StatusOr<bool> GatedAtOnce(const OpContext& op, const LinearInput& in,
                                   LinearInput& y) const;
  // gate_up: [T, 2 * width], y: [T, width], for down_proj_.
  absl::Status Gate(const OpContext& op, const TensorView& gate_up, LinearInput& y) const;

  int64_t hidden_size_ = 0;
  // Rows of gate, then up; where gate_up_block_ is not 0, in blocks of it by turns.
  ColumnParallelLinear gate_up_proj_;
  int64_t gate_up_block_ = 0;
  bool bias_ = false;
  RowParallelLinear down_proj_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_LLAMA_MLP_H_
