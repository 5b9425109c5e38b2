// The gated activation of LLaMA's MLP.
#ifndef KERNELS_SWIGLU_SWIGLU_H_
#define KERNELS_SWIGLU_SWIGLU_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct SwigluArgs {
  TensorView x;  // [T, 2 I] f32 or bf16: I gate columns, then I up columns; rows may be padded
  TensorView y;  // [T, I], dtype of x; rows may be padded; overlaps x nowhere
};

// y[t, i] = silu(gate) * up with gate = x[t, i], up = x[t, I + i], silu(g) = g / (1 + exp(-g)),
// in f32, rounded once.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Swiglu(const OpContext& ctx, const SwigluArgs& args);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_H_
