// Gated activation of a LLaMA MLP: silu(gate) * up.
#ifndef KERNELS_SWIGLU_SWIGLU_H_
#define KERNELS_SWIGLU_SWIGLU_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// T tokens, I intermediate width. Rows may be padded. One dtype, f32 or bf16.
struct SwigluArgs {
  TensorView gate_up;  // [T, 2 I]: the gate's columns, then the up's
  TensorView out;      // [T, I], overwritten; overlaps nothing
};

// out = gate / (1 + exp(-gate)) * up, computed in f32 and rounded once.
// InvalidArgument: shapes, dtypes. Unimplemented: no kernel for the device.
absl::Status Swiglu(const OpContext& ctx, const SwigluArgs& args);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_SWIGLU_H_
