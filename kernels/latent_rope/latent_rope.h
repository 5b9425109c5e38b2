// Rotates the last channels of every head as pairs of neighbours, forward or back, with a
// normalisation of the head before it where asked.
#ifndef KERNELS_LATENT_ROPE_LATENT_ROPE_H_
#define KERNELS_LATENT_ROPE_LATENT_ROPE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct LatentRopeArgs {
  TensorView x;          // [T, N, D] f32 or bf16, changed in place; tokens and heads may be padded
  TensorView positions;  // [T] i32, read on the device
  TensorView inv_freq;   // [R / 2] f32, radians per position; R <= D channels are rotated
  bool inverse = false;  // rotate by -position
  // With a value (> 0): x <- x / sqrt(mean(x^2) + norm_eps) over the D channels of each head first.
  std::optional<float> norm_eps;
};

// With a = position * inv_freq[i] (or its negative), x' = x or the normalised x, and o = D - R:
//   x[o + 2i]     <- x'[o + 2i] cos a - x'[o + 2i + 1] sin a
//   x[o + 2i + 1] <- x'[o + 2i + 1] cos a + x'[o + 2i] sin a
// and x <- x' for the channels before o. Arithmetic is f32, rounded once.
//
// InvalidArgument for operands that do not fit together or norm_eps <= 0, Unimplemented where the
// device has no kernel. A head's result depends on that head alone, bit for bit. Worker thread.
absl::Status LatentRope(const OpContext& ctx, const LatentRopeArgs& args);

}  // namespace millrace

#endif  // KERNELS_LATENT_ROPE_LATENT_ROPE_H_
