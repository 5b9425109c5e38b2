// RMS normalisation with a learned weight. Every rank holds and computes all of it.
#ifndef ENGINE_LAYERS_NORM_LAYER_H_
#define ENGINE_LAYERS_NORM_LAYER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/fp8_linear.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

// Immutable after load.
class NormLayer final {
 public:
  NormLayer() = default;
  // Weight `name` of `size` elements.
  static absl::StatusOr<NormLayer> Load(const std::string& name, int64_t size, double eps,
                                        LoadContext& ctx);

  // out.x = norm(x), or where `out` wants codes those of it instead; [T, size] each.
  absl::Status Forward(const OpContext& op, const TensorView& x, LinearInput& out) const;
  // residual += sum over the ranks of delta; out = norm(residual), as above; [T, size] each.
  // Overwrites delta. Small messages go through the communicator's peers in one op, where it has
  // them; then `out` is never codes.
  absl::Status SumAddForward(ForwardContext& ctx, const TensorView& delta,
                             const TensorView& residual, LinearInput& out) const;
  // out = norm(x), as floats.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& out) const;
  // Of the two that write codes, at most.
  static int64_t WorkspaceBytes(DType dtype, int64_t tokens, int64_t size);

 private:
  // residual may be none.
  absl::Status Norm(const OpContext& op, const TensorView& x,
                    const std::optional<TensorView>& residual, LinearInput& out) const;

  Weight weight_;
  float eps_ = 0;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_NORM_LAYER_H_
