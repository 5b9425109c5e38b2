// The first half of LLaMA's MLP in FP8 for few tokens: gate and up projection and the gated
// activation in one launch, so that the projections never reach memory.
#ifndef KERNELS_FP8_GATED_FP8_GATED_H_
#define KERNELS_FP8_GATED_FP8_GATED_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/fp8_gemm/fp8_gemm.h"

namespace millrace {

// T tokens, K inputs, I outputs. Codes are E4M3; rows may be padded.
struct Fp8GatedArgs {
  TensorView x;             // [T, K] u8
  TensorView x_scale;       // as Fp8GemmArgs has it
  TensorView weight;        // [2 I, K] u8: the rows of gate, then those of up
  TensorView weight_scale;  // as Fp8GemmArgs has it, in the order of the rows
  TensorView y;             // [T, I] bf16, overwritten; overlaps nothing else
  Fp8GemmScales scales = Fp8GemmScales::kVectors;
};

// Tokens at most.
inline constexpr int64_t kFp8GatedTokens = 8;

// Whether such weights had better come here than to Fp8Gemm and Swiglu, which do the same work but
// round gate and up in between: CUDA from sm_89 on, inputs a multiple of 128, outputs (I) of 16.
// The CPU has nothing to gain. For load: it asks the device.
absl::StatusOr<bool> Fp8GatedCovers(Device& device, int64_t inputs, int64_t outputs);

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)), gate and up as Fp8Gemm() has them, in f32,
// rounded once.
// InvalidArgument: operands that do not fit together. ResourceExhausted: workspace below
// Fp8GatedWorkspaceBytes. Unimplemented: more tokens, inputs or outputs of other multiples, a GPU
// below sm_89, and there rows off 16 bytes. Worker thread.
absl::Status Fp8Gated(const OpContext& ctx, const Fp8GatedArgs& args);

// Workspace that calls with at most so many inputs and outputs (I) need on this device.
absl::StatusOr<int64_t> Fp8GatedWorkspaceBytes(Device& device, int64_t max_inputs,
                                               int64_t max_outputs);

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_H_
