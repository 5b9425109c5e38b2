// The residual of several streams around a sublayer (kernels/hyper_connection). Every rank holds
// and computes all of it.
#ifndef ENGINE_LAYERS_HYPER_CONNECTION_LAYER_H_
#define ENGINE_LAYERS_HYPER_CONNECTION_LAYER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct HyperConnectionConfig {
  int64_t hidden_size = 0;
  int64_t streams = 0;
  float norm_eps = 0;
  float hc_eps = 0;
  int32_t sinkhorn_iters = 0;
};

// What a sublayer's way out needs from its way in.
struct HyperConnectionMix {
  TensorView post;  // [T, S] f32
  TensorView comb;  // [T, S, S] f32
};

// From the workspace.
absl::StatusOr<HyperConnectionMix> TakeHyperConnectionMix(WorkspaceScope& scope,
                                                          const OpContext& op, int64_t tokens,
                                                          int64_t streams);
int64_t HyperConnectionMixBytes(int64_t tokens, int64_t streams);

// Around one sublayer. Immutable after load.
class HyperConnectionLayer final {
 public:
  HyperConnectionLayer() = default;
  // Tensors PREFIX_fn, PREFIX_base and PREFIX_scale, as in "layers.0.hc_attn".
  static absl::StatusOr<HyperConnectionLayer> Load(const HyperConnectionConfig& config,
                                                   const std::string& prefix, LoadContext& ctx);

  // streams [T, S, D] -> x [T, D], the sublayer's input before its norm, and `mix`.
  absl::Status In(const OpContext& op, const TensorView& streams, const TensorView& x,
                  const HyperConnectionMix& mix) const;
  // Takes the sublayer's output [T, D] into the streams.
  absl::Status Out(const OpContext& op, const TensorView& out, const HyperConnectionMix& mix,
                   const TensorView& streams) const;

  // What In needs, and no less than what HyperConnectionHeadLayer does.
  int64_t WorkspaceBytes(Device& device, int64_t max_tokens) const;

 private:
  HyperConnectionConfig config_;
  Weight fn_, base_, scale_;
};

// Behind the last layer. Immutable after load.
class HyperConnectionHeadLayer final {
 public:
  HyperConnectionHeadLayer() = default;
  // As above, with "hc_head".
  static absl::StatusOr<HyperConnectionHeadLayer> Load(const HyperConnectionConfig& config,
                                                       const std::string& prefix, LoadContext& ctx);

  // streams [T, S, D] -> y [T, D], before the final norm.
  absl::Status Forward(const OpContext& op, const TensorView& streams, const TensorView& y) const;

 private:
  HyperConnectionConfig config_;
  Weight fn_, base_, scale_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_HYPER_CONNECTION_LAYER_H_
