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

// Whether the device has a kernel for such weights: CUDA from sm_89 on, inputs a multiple of 128,
// outputs (I) of 16. Elsewhere Fp8Gemm and Swiglu do the same work. For load: it asks the device.
absl::StatusOr<bool> Fp8GatedCovers(Device& device, int64_t inputs, int64_t outputs);

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)), gate and up as Fp8Gemm() has them, in f32,
// rounded once.
// InvalidArgument: operands that do not fit together. Unimplemented: not covered, or rows off 16
// bytes. Worker thread.
absl::Status Fp8Gated(const OpContext& ctx, const Fp8GatedArgs& args);

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_H_
