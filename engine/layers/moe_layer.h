// DeepSeek-V4's mixture of experts: a router, routed experts and a shared one. Routed experts are
// split over the ranks, whole or by width; whole ones also over the ranks of other batches, to
// which tokens travel. The router is whole on each.
#ifndef ENGINE_LAYERS_MOE_LAYER_H_
#define ENGINE_LAYERS_MOE_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/expert_exchange.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_experts.h"
#include "engine/layers/stored_linear_layer.h"
#include "engine/layers/stored_mlp.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct MoeConfig {
  int64_t hidden_size = 0;
  int64_t width = 0;  // of an expert, the shared one too
  int64_t num_experts = 0;
  int64_t chosen = 0;  // experts a token
  float scaling = 0;   // of the normalised weights
  float limit = 0;     // of SwigluArgs
  // > 0: a table over this many token ids chooses the experts, instead of the scores.
  int64_t hash_ids = 0;
};

// Immutable after load.
class MoeLayer final {
 public:
  // Weights gate, experts and shared_experts below `prefix` ("layers.0.ffn"). InvalidArgument when
  // the experts cannot be split over the ranks; else what the loader reports.
  static absl::StatusOr<MoeLayer> Load(const MoeConfig& config, const std::string& prefix,
                                       LoadContext& ctx);

  // out = routed(x) + shared(x), summed over the ranks; x and out are [T, hidden].
  absl::Status Forward(ForwardContext& ctx, const ForwardBatch& batch, const TensorView& x,
                       const TensorView& out) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  // A step's choice.
  struct Routes {
    TensorView experts;  // [T, chosen] i32
    TensorView weights;  // [T, chosen] f32
  };

  MoeLayer() = default;
  absl::Status LoadRouter(const std::string& prefix, LoadContext& ctx);
  absl::Status LoadExperts(const std::string& prefix, LoadContext& ctx);
  // Adds the routed experts' part, or a summand of it, to `out`.
  absl::Status AddRouted(ForwardContext& ctx, const TensorView& x, const Routes& routes,
                         const TensorView& out) const;
  absl::Status Route(const OpContext& op, const ForwardBatch& batch, const TensorView& x,
                     const Routes& routes) const;

  MoeConfig config_;
  StoredLinearLayer gate_;
  Weight bias_;   // [E] f32; empty with a table
  Weight table_;  // [hash_ids, chosen] i32; empty without
  StoredExperts experts_;
  std::optional<ExpertExchange> exchange_;  // where other batches' ranks hold experts too
  StoredMlp shared_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_MOE_LAYER_H_
