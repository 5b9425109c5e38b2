// The products of a linear layer with a weight of FP8.
#ifndef ENGINE_LAYERS_FP8_LINEAR_H_
#define ENGINE_LAYERS_FP8_LINEAR_H_

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/fp8_weight.h"
#include "engine/layers/weight_loader.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

// Activations on their way into a linear layer.
struct LinearInput {
  TensorView x;  // [T, K] f32 or bf16
  // Where the layer is FP8: its codes and scales, and how they are made. `x` in it is not set.
  std::optional<QuantizeArgs> fp8;
  // Codes and scales are there, by an op that ends in a quantisation; `x` was not written.
  bool quantised = false;
};

// y = x W^T of this rank's part of W, as Fp8Weight has it. Activations are quantised first: by
// groups of 128 where the weight's scales are of blocks, else by the weight's input scale or, where
// it has none, by tokens. Immutable after load, but for the flags that its products need.
class Fp8Linear final {
 public:
  // As LoadFp8.
  static absl::StatusOr<Fp8Linear> Load(absl::Span<const StoredPart> parts, const LinearPlan& plan,
                                        LoadContext& ctx);

  // Of this rank's part.
  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

  // Where this layer wants the codes and scales of x, in workspace of InputBytes(). Not written.
  absl::StatusOr<LinearInput> TakeInput(WorkspaceScope& scope, const TensorView& x) const;
  static int64_t InputBytes(int64_t tokens, int64_t inputs);

  // y = x W^T + bias. in: of TakeInput, quantised or not; bias: [outputs()] f32 or bf16; y: [T,
  // outputs()] f32 or bf16.
  absl::Status Forward(const OpContext& op, const LinearInput& in,
                       const std::optional<TensorView>& bias, const TensorView& y) const;

  // y = silu(g) * u of x W^T = [g, u], g as wide as u, in one op, where GatedCovers(y). y: of the
  // layer behind's TakeInput, x [T, outputs() / 2]; x is written or, by an op that ends in them,
  // its codes, and y.quantised says so.
  absl::Status GatedForward(const OpContext& op, const LinearInput& in, LinearInput& y) const;
  bool GatedCovers(const LinearInput& y) const;

  // That Forward needs at most, besides its input's.
  int64_t WorkspaceBytes(Device& device) const;

 private:
  Fp8Linear() = default;
  // Whether Fp8GateUp makes the codes that y wants.
  bool GateUpCovers(const LinearInput& y) const;
  // Whether QuantizeFp8Gemm takes such an input.
  bool QuantizeCovers(const LinearInput& in) const;
  // The codes and scales of `in`, which is quantised now if it was not.
  static absl::StatusOr<QuantizeArgs> CodesOf(const OpContext& op, const LinearInput& in);

  int64_t inputs_ = 0;
  int64_t outputs_ = 0;
  Fp8Weight weight_;
  bool has_gated_ = false;  // Fp8Gated has a kernel for the weight
  bool quantizes_ = false;  // QuantizeFp8Gemm is what its products of one token are
  // From here on Fp8GateUp is faster than what it stands for.
  int64_t gate_up_tokens_ = std::numeric_limits<int64_t>::max();
  Weight flags_;  // of Fp8Gemm; of this layer alone, so that products may overlap
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_FP8_LINEAR_H_
