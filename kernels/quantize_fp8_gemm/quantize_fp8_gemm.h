// A linear layer in FP8 for one token that comes as floats: the product quantises it.
#ifndef KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_H_
#define KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// K inputs, N outputs. Codes are E4M3; rows may be padded.
struct QuantizeFp8GemmArgs {
  TensorView x;                    // [1, K] bf16
  TensorView weight;               // [N, K] u8
  TensorView weight_scale;         // f32: [N], of an output, or [1], of all
  TensorView y;                    // [1, N], f32 or bf16, overwritten; overlaps nothing else
  std::optional<TensorView> bias;  // [N], f32 or bf16
};

// Inputs at most.
inline constexpr int64_t kQuantizeFp8GemmInputs = 16384;

// Whether the op is the fastest way for such weights: on Hopper, with inputs a multiple of 128 up
// to kQuantizeFp8GemmInputs and one tile of outputs for each multiprocessor. Elsewhere Quantize and
// Fp8Gemm do the same work. For load: it asks the device.
absl::StatusOr<bool> QuantizeFp8GemmCovers(Device& device, int64_t inputs, int64_t outputs);

// y of Fp8Gemm(), scales of vectors, from the codes and the scale that Quantize() makes of x as a
// token with an f32 scale.
// InvalidArgument: operands that do not fit together. ResourceExhausted: workspace below
// QuantizeFp8GemmWorkspaceBytes. Unimplemented: several tokens, a number of inputs that Covers()
// does not name, and of GPUs another one, more outputs or rows off 16 bytes. Worker thread.
absl::Status QuantizeFp8Gemm(const OpContext& ctx, const QuantizeFp8GemmArgs& args);

// Workspace that calls with at most so many inputs need on this device.
absl::StatusOr<int64_t> QuantizeFp8GemmWorkspaceBytes(Device& device, int64_t max_inputs);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_H_
