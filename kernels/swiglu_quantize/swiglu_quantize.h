// Swiglu and Quantize in one: the gated activation leaves as FP8 codes and never reaches memory.
#ifndef KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H_
#define KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

struct SwigluQuantizeArgs {
  TensorView x;  // [T, 2 I] f32 or bf16; x, block and limit as SwigluArgs has them
  int64_t block = 0;
  float limit = 0;
  TensorView codes;  // [T, I] u8, overwritten; rows may be padded
  TensorView scale;  // f32, as QuantizeArgs has it
  // kGroup, kToken, or kTensor with a given scale: what a row determines.
  QuantizeUnit unit = QuantizeUnit::kGroup;
  QuantizeScale rounding = QuantizeScale::kF32;
  QuantizeFormat format = QuantizeFormat::kE4M3;
};

// The bits that Swiglu() into a tensor of x's dtype and Quantize() of it give on the same device:
// what is quantised is the activation as rounded to x's dtype.
//
// Between devices, and instruction sets of the CPU, activations differ by some units of f32 before
// they are rounded: the exponential and the quotient are theirs. So a few codes are the next ones
// (tests allow one in 2^12), and a scale, where a unit's largest element is among those that
// differ, that of its neighbour in x's dtype, or the next power of two.
//
// InvalidArgument for operands or choices that do not fit together. ResourceExhausted: workspace
// below SwigluQuantizeWorkspaceBytes. Unimplemented where the device has no kernel. Worker thread.
absl::Status SwigluQuantize(const OpContext& ctx, const SwigluQuantizeArgs& args);

// Workspace that calls of at most `tokens` rows of `outputs` (I) need, x of `dtype`.
int64_t SwigluQuantizeWorkspaceBytes(DType dtype, int64_t tokens, int64_t outputs);

}  // namespace millrace

#endif  // KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_H_
