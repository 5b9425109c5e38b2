// A gated MLP with stored matrices and clamped activations: DeepSeek-V4's shared expert.
#ifndef ENGINE_LAYERS_STORED_MLP_H_
#define ENGINE_LAYERS_STORED_MLP_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_linear_layer.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

struct StoredMlpConfig {
  int64_t hidden_size = 0;
  int64_t width = 0;  // of the whole MLP
  Range part;         // of it, this rank's: all of it where the layer is replicated
  float limit = 0;    // of SwigluArgs
};

// Immutable after load.
class StoredMlp final {
 public:
  StoredMlp() = default;
  // Matrices w1 (gate), w3 (up) and w2 (down) below `prefix` ("layers.0.ffn.shared_experts").
  // Errors as LoadStored; CutColumns(prefix + ".w2", ...) gives a part that fits.
  static absl::StatusOr<StoredMlp> Load(const StoredMlpConfig& config, const std::string& prefix,
                                        LoadContext& ctx);

  // out = w2(swiglu(w1 x, w3 x)) of this rank's columns: with part of the width, a summand. x and
  // out are [T, hidden]. No collective.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& out) const;

  // That Forward needs at most, its ops' included.
  int64_t WorkspaceBytes(Device& device, const LargestStep& limits) const;

 private:
  float limit_ = 0;
  StoredLinearLayer gate_, up_, down_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_STORED_MLP_H_
