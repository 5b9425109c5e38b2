// Linear layer over a matrix in its checkpoint's format: y = x W^T.
#ifndef KERNELS_STORED_LINEAR_STORED_LINEAR_H_
#define KERNELS_STORED_LINEAR_STORED_LINEAR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

// T tokens, K inputs, N outputs. Rows of x and y may be padded (dim 0 strided).
struct StoredLinearArgs {
  TensorView x;         // [T, K] f32 or bf16
  StoredMatrix weight;  // one matrix, [N, K]
  TensorView y;         // [T, N] f32 or bf16, overwritten; overlaps no other operand
  ActivationRounding rounding = ActivationRounding::kNone;  // of x
};

// Weights are widened to f32 as DequantizeFp8 and its like do, products are summed in f32; the
// scale of an FP8 tile may be multiplied with the sum of a token's products of 128 inputs instead.
// A token's outputs do not depend on the other tokens of the call, bit for bit, nor on the number
// of threads, nor on how the rows of the weight are cut over calls. InvalidArgument: shapes or
// dtypes. ResourceExhausted: workspace below StoredLinearWorkspaceBytes. Unimplemented: no kernel
// for the device. Worker thread.
absl::Status StoredLinear(const OpContext& ctx, const StoredLinearArgs& args);

// Workspace that calls with at most `max_inputs` inputs need on this device, for any number of
// tokens and outputs.
int64_t StoredLinearWorkspaceBytes(Device& device, int64_t max_inputs);

}  // namespace millrace

#endif  // KERNELS_STORED_LINEAR_STORED_LINEAR_H_
