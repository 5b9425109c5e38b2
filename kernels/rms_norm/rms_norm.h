// Root-mean-square normalisation with a learned weight, with the residual addition before it fused.
#ifndef KERNELS_RMS_NORM_RMS_NORM_H_
#define KERNELS_RMS_NORM_RMS_NORM_H_

#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct RmsNormArgs {
  TensorView x;  // [T, H] f32 or bf16; rows may be padded
  // [T, H], dtype of x, in and out: residual <- residual + x, and that sum is normalised.
  std::optional<TensorView> residual;
  TensorView weight;  // [H] f32 or bf16
  TensorView y;       // [T, H], dtype of x; may be x
  float eps = 0;      // > 0
};

// With h = x, or h = round(x + residual) in the dtype of x:
//   y[t, i] = h[t, i] / sqrt(mean_i(h[t, i]^2) + eps) * weight[i]        in f32, rounded once.
//
// InvalidArgument for operands that do not fit together or eps <= 0, Unimplemented where the device
// has no kernel. Worker thread.
absl::Status RmsNorm(const OpContext& ctx, const RmsNormArgs& args);

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_RMS_NORM_H_
