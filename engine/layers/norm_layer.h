// RMS normalisation with a learned weight. Every rank holds and computes all of it.
#ifndef ENGINE_LAYERS_NORM_LAYER_H_
#define ENGINE_LAYERS_NORM_LAYER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

// Immutable after load.
class NormLayer final {
 public:
  NormLayer() = default;
  // Weight `name` of `size` elements.
  static absl::StatusOr<NormLayer> Load(const std::string& name, int64_t size, double eps,
                                        LoadContext& ctx);

  // out = norm(x); [T, size] each.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& out) const;
  // residual += sum over the ranks of delta; out = norm(residual); [T, size] each. Overwrites
  // delta. Small messages go through the communicator's peers in one op, where it has them.
  absl::Status SumAddForward(ForwardContext& ctx, const TensorView& delta,
                             const TensorView& residual, const TensorView& out) const;

 private:
  Weight weight_;
  float eps_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_NORM_LAYER_H_
