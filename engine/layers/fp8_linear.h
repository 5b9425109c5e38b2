// The products of a linear layer with a weight of FP8.
#ifndef ENGINE_LAYERS_FP8_LINEAR_H_
#define ENGINE_LAYERS_FP8_LINEAR_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/fp8_weight.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

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

  // x: [T, inputs()], y: [T, outputs()]; f32 or bf16 each.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& y) const;

  // That Forward needs at most for `tokens` tokens.
  int64_t WorkspaceBytes(Device& device, int64_t tokens) const;

 private:
  Fp8Linear() = default;
  // codes: [T, inputs()] u8, x_scale: as Fp8Gemm takes it.
  absl::Status Products(const OpContext& op, const TensorView& codes, const TensorView& x_scale,
                        const TensorView& y) const;

  int64_t inputs_ = 0;
  int64_t outputs_ = 0;
  Fp8Weight weight_;
  Weight flags_;  // of Fp8Gemm; of this layer alone, so that products may overlap
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_FP8_LINEAR_H_
