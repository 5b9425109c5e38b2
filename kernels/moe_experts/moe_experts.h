// The routed experts of a mixture: each token's chosen ones, as far as this rank holds them.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_H_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/stored_matrix/stored_matrix.h"

namespace millrace {

// T tokens of D channels, K choices a token, E experts of inner width I. Rows of tensors may be
// padded. When experts are cut by width, I is this rank's part.
struct MoeExpertsArgs {
  TensorView x;              // [T, D] f32 or bf16
  TensorView experts;        // [T, K] i32, of all ranks' experts
  TensorView weights;        // [T, K] f32
  StoredMatrix gate;         // [E, I, D]
  StoredMatrix up;           // [E, I, D]
  StoredMatrix down;         // [E, D, I]
  int32_t first_expert = 0;  // this rank's are [first_expert, first_expert + E)
  float limit = 0;           // of SwigluArgs
  ActivationRounding rounding = ActivationRounding::kNone;  // of x, and of what goes into down
  TensorView y;  // [T, D] f32, overwritten; overlaps no other operand
};

// y[t] = sum over k, in that order, of down_e (weights[t, k] * swiglu(gate_e x[t], up_e x[t])) with
// e = experts[t, k], over those e that this rank holds; others count nothing, -1 among them, and a
// token without any gets zeros. Weights are widened to f32 as DequantizeFp8 and its like do,
// everything is summed in f32. Rounding applies where the matrix is quantised.
//
// A token's result does not depend on the other tokens of the call, bit for bit, nor on the number
// of threads. Sums of ranks' results differ in rounding alone from one rank's.
// InvalidArgument: shapes or dtypes. ResourceExhausted: workspace below MoeExpertsWorkspaceBytes.
// Unimplemented: no kernel for the device. Worker thread.
absl::Status MoeExperts(const OpContext& ctx, const MoeExpertsArgs& args);

struct MoeExpertsShape {
  int64_t hidden = 0;   // D
  int64_t width = 0;    // I
  int64_t experts = 0;  // E
  int64_t chosen = 0;   // K
};
// Workspace that calls of this shape need on this device, for any number of tokens.
int64_t MoeExpertsWorkspaceBytes(Device& device, const MoeExpertsShape& shape);

}  // namespace millrace

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_H_
