// The routed experts that a rank holds.
#ifndef ENGINE_LAYERS_STORED_EXPERTS_H_
#define ENGINE_LAYERS_STORED_EXPERTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_weight.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct StoredExpertsConfig {
  int64_t hidden_size = 0;
  int64_t width = 0;   // of an expert
  int64_t chosen = 0;  // experts a token
  int64_t num_experts = 0;
  Range experts;    // of them, this rank's
  Range part;       // of the width, this rank's: all of it with expert parallelism
  float limit = 0;  // of SwigluArgs
};

// Immutable after load.
class StoredExperts final {
 public:
  StoredExperts() = default;
  // Matrices E.w1 (gate), E.w3 (up) and E.w2 (down) below `prefix` ("layers.0.ffn.experts") for
  // each expert E of this rank; those of the others are checked alike. Errors as LoadStored;
  // CutColumns(prefix + ".0.w2", ...) gives a part of the width that fits.
  static absl::StatusOr<StoredExperts> Load(const StoredExpertsConfig& config,
                                            const std::string& prefix, LoadContext& ctx);

  // What MoeExpertsArgs says: x [T, hidden], experts and weights [T, chosen], out [T, hidden] f32.
  // out is a summand where the experts or their width are cut. No collective.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& experts,
                       const TensorView& weights, const TensorView& out) const;

  // That Forward needs.
  int64_t WorkspaceBytes(Device& device) const;

 private:
  StoredExpertsConfig config_;
  StoredWeight gate_, up_, down_;
  ActivationRounding rounding_ = ActivationRounding::kNone;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_STORED_EXPERTS_H_
