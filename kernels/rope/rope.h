// Rotary position embedding, in place: rotates the pairs (i, i + D/2) of every head by an angle
// that grows with the token's position (the "rotate half" pairing of Hugging Face checkpoints).
#ifndef KERNELS_ROPE_ROPE_H_
#define KERNELS_ROPE_ROPE_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/rope/rotation.h"

namespace millrace {

struct RopeArgs {
  // [T, N, D] f32 or bf16, changed in place; tokens and heads may be padded. D is even and at most
  // kMaxRopeDim. Query and key heads that lie side by side in one qkv row are one call.
  TensorView x;
  // [T] i32, read on the device, so that a captured graph can be replayed; on CUDA written ahead of
  // the last kernel before this one that is not early (kernels/ptx, the PDL rule).
  TensorView positions;
  TensorView inv_freq;  // [D/2] f32, radians per position (see rope_frequencies.h)
};

// With a = position * inv_freq[i]:  x[i]       <- x[i] cos a - x[i + D/2] sin a
//                                   x[i + D/2] <- x[i + D/2] cos a + x[i] sin a
// Angles are exact to 1e-7 radians up to a million positions and beyond; arithmetic is f32.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Rope(const OpContext& ctx, const RopeArgs& args);

}  // namespace millrace

#endif  // KERNELS_ROPE_ROPE_H_
