// Linear layers cut over the ranks of a tensor-parallel group.
#ifndef ENGINE_LAYERS_PARALLEL_LINEAR_H_
#define ENGINE_LAYERS_PARALLEL_LINEAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/fp8_linear.h"
#include "engine/layers/fp8_weight.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

// A linear layer's matrix, or several of one input: floats, or FP8 (Fp8Linear).
class LinearWeight final {
 public:
  LinearWeight() = default;
  // `parts`: see LoadFp8. `plan`: of their prefixes.
  static absl::StatusOr<LinearWeight> Load(absl::Span<const StoredPart> parts,
                                           const LinearPlan& plan, LoadContext& ctx);

  // x, [T, inputs], as Forward takes it: with workspace for its codes where the weight is FP8.
  absl::StatusOr<LinearInput> TakeInput(WorkspaceScope& scope, const TensorView& x) const;
  // y = x W^T + bias; `bias` may be empty. in: of TakeInput; y: [T, outputs].
  absl::Status Forward(const OpContext& op, const LinearInput& in, const Weight& bias,
                       const TensorView& y) const;
  // As Fp8Linear's; floats are never covered.
  absl::Status GatedForward(const OpContext& op, const LinearInput& in, LinearInput& y) const;
  bool GatedCovers(const LinearInput& y) const;
  // That one call of both needs at most for `tokens` tokens.
  int64_t WorkspaceBytes(Device& device, int64_t tokens) const;

  // [outputs, inputs] floats. REQUIRES: it is not FP8.
  const TensorView& plain() const { return plain_.view; }

 private:
  Weight plain_;
  std::optional<Fp8Linear> fp8_;
};

// y = x W^T + b with W cut by outputs: every rank has the whole x and computes its own columns of
// y. Several projections of the same x, such as q, k and v, are one product. Immutable after load.
class ColumnParallelLinear final {
 public:
  struct Projection {
    std::string prefix;   // of ".weight" and ".bias"
    int64_t outputs = 0;  // of the whole projection
    Range part;           // of them, this rank's
  };

  ColumnParallelLinear() = default;
  // `plan`: PlanLinear of the projections' prefixes.
  static absl::StatusOr<ColumnParallelLinear> Load(absl::Span<const Projection> projections,
                                                   int64_t inputs, bool bias,
                                                   const LinearPlan& plan, LoadContext& ctx);

  // This rank's, of all projections together.
  int64_t outputs() const { return outputs_; }
  const LinearWeight& weight() const { return weight_; }

  // in: weight().TakeInput, y: [T, outputs()], projections side by side.
  absl::Status Forward(const OpContext& op, const LinearInput& in, const TensorView& y) const;

 private:
  int64_t outputs_ = 0;
  LinearWeight weight_;  // [outputs, inputs]
  Weight bias_;          // [outputs], or empty
};

// y = x W^T + b with W cut by inputs: every rank has its own columns of x, and the sum of the
// ranks' partial products is the whole y. Immutable after load.
class RowParallelLinear final {
 public:
  struct Projection {
    std::string prefix;  // of ".weight" and ".bias"
    int64_t outputs = 0;
    int64_t inputs = 0;  // of the whole projection
    Range part;          // of them, this rank's
  };

  RowParallelLinear() = default;
  // `plan`: PlanLinear of the projection's prefix.
  static absl::StatusOr<RowParallelLinear> Load(const Projection& projection, bool bias,
                                                const LinearPlan& plan, LoadContext& ctx);

  // This rank's partial product, for the norm that follows to sum (NormLayer::SumAddForward).
  // in: weight().TakeInput of this rank's inputs, y: [T, outputs].
  absl::Status PartialForward(const OpContext& op, const LinearInput& in,
                              const TensorView& y) const;
  const LinearWeight& weight() const { return weight_; }

 private:
  LinearWeight weight_;  // [outputs, inputs of this rank]
  Weight bias_;          // [outputs] on rank 0, which adds it for all; else empty
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_PARALLEL_LINEAR_H_
