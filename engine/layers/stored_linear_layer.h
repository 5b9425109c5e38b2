// Linear layers whose weight stays in its checkpoint's format.
#ifndef ENGINE_LAYERS_STORED_LINEAR_LAYER_H_
#define ENGINE_LAYERS_STORED_LINEAR_LAYER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/layers/forward_context.h"
#include "engine/layers/stored_weight.h"
#include "engine/layers/weight_loader.h"

namespace millrace {

// y = x W^T with this rank's part of W: all of it (replicated), some rows (cut by outputs) or some
// columns (cut by inputs, y is then a summand: see StoredRowParallelLinear). Knows of no other
// rank. Immutable after load.
class StoredLinearLayer final {
 public:
  StoredLinearLayer() = default;
  static absl::StatusOr<StoredLinearLayer> Load(const StoredPart& part, LoadContext& ctx);

  // Of this rank's part.
  int64_t inputs() const { return weight_.matrix.cols; }
  int64_t outputs() const { return weight_.matrix.rows; }

  // x: [T, inputs()], y: [T, outputs()]; f32 or bf16 each, rows may be padded.
  absl::Status Forward(const OpContext& op, const TensorView& x, const TensorView& y) const;
  // As Forward, with rows [rows.begin, rows.end) of W alone: y is [T, rows.size()]. For weights
  // that are several matrices in one, such as DeepSeek-V4's grouped output projection.
  absl::Status ForwardRows(const OpContext& op, Range rows, const TensorView& x,
                           const TensorView& y) const;

  // That Forward needs.
  int64_t WorkspaceBytes(Device& device) const;

 private:
  StoredWeight weight_;
  ActivationRounding rounding_ = ActivationRounding::kNone;
};

// y = x W^T with W cut by inputs: every rank has its own columns of x, and the partial products are
// summed over the ranks. Immutable after load.
class StoredRowParallelLinear final {
 public:
  StoredRowParallelLinear() = default;
  // `part.row_part` is all rows.
  static absl::StatusOr<StoredRowParallelLinear> Load(const StoredPart& part, LoadContext& ctx);

  // x: [T, this rank's inputs], y: [T, outputs], dense.
  absl::Status Forward(ForwardContext& ctx, const TensorView& x, const TensorView& y) const;
  int64_t WorkspaceBytes(Device& device) const { return linear_.WorkspaceBytes(device); }

 private:
  StoredLinearLayer linear_;
};

}  // namespace millrace

#endif  // ENGINE_LAYERS_STORED_LINEAR_LAYER_H_
