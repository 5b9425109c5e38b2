// Root-mean-square normalisation with an optional fused residual addition.
#ifndef KERNELS_RMS_NORM_RMS_NORM_H_
#define KERNELS_RMS_NORM_RMS_NORM_H_

#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// T tokens, H width. Rows may be padded. x, residual and y have one dtype, f32 or bf16.
struct RmsNormArgs {
  TensorView x;                        // [T, H]
  std::optional<TensorView> residual;  // [T, H], in and out
  TensorView weight;                   // [H] f32 or bf16
  float eps = 0;                       // added to the mean of squares; > 0
  TensorView y;                        // [T, H], overwritten; may be x
};

// Without a residual: h = x. With: h = residual + x, rounded to the dtype and written to residual.
// Then y = h / sqrt(mean(h^2) + eps) * weight, computed in f32 and rounded once.
// InvalidArgument: shapes, dtypes, eps. Unimplemented: no kernel for the device.
absl::Status RmsNorm(const OpContext& ctx, const RmsNormArgs& args);

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_H_
