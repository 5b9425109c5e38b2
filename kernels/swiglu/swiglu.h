// The gated activation of an MLP, plain (LLaMA) or clamped (DeepSeek-V4).
#ifndef KERNELS_SWIGLU_SWIGLU_H_
#define KERNELS_SWIGLU_SWIGLU_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct SwigluArgs {
  TensorView x;  // [T, 2 I] f32 or bf16: gate and up columns (see block); rows may be padded
  TensorView y;  // [T, I], dtype of x; rows may be padded; overlaps x nowhere
  // Gate and up columns alternate in blocks of this many: `block` gate columns, the `block` up
  // columns that go with them, and so on. Divides I. 0: one block, all gates and then all ups.
  int64_t block = 0;
  // Clamps before the product: gate to at most `limit`, up to [-limit, limit]. 0: no clamp.
  float limit = 0;
};

// y[t, i] = silu(gate) * up with gate = x[t, 2 i - i % block], up = the column `block` further,
// silu(g) = g / (1 + exp(-g)), in f32, rounded once. NaN stays NaN, clamped or not.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Swiglu(const OpContext& ctx, const SwigluArgs& args);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_H_
