// Linear layer: y = x W^T + b.
#ifndef KERNELS_LINEAR_LINEAR_H_
#define KERNELS_LINEAR_LINEAR_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// T tokens, K inputs, N outputs. Each of the four may be f32 or bf16, independently. Rows may be
// padded (dim 0 strided). y overlaps no other operand. Sums are kept in f32.
struct LinearArgs {
  TensorView x;                    // [T, K]
  TensorView weight;               // [N, K]
  std::optional<TensorView> bias;  // [N]
  TensorView y;                    // [T, N], overwritten
};

// CPU: a token's outputs do not depend on the other tokens of the call, bit for bit, nor on the
// number of threads. They do depend on the instruction set and on the dtype of the weight.
// CUDA: which kernel runs depends on the operands' shapes, dtypes and alignment, the number of
// tokens among them (README.md), and so do the bits.
// InvalidArgument: shapes or dtypes. ResourceExhausted: workspace below LinearWorkspaceBytes.
// Unimplemented: no kernel for the device.
absl::Status Linear(const OpContext& ctx, const LinearArgs& args);

// Workspace that calls with at most `max_inputs` inputs and `max_outputs` outputs need on this
// device, for any number of tokens.
int64_t LinearWorkspaceBytes(Device& device, int64_t max_inputs, int64_t max_outputs);

}  // namespace millrace

#endif  // KERNELS_LINEAR_LINEAR_H_
