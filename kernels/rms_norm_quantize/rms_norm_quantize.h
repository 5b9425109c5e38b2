// RmsNorm and Quantize in one: the normalised rows leave as FP8 codes, and reach memory only where
// the caller wants them too.
#ifndef KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_H_
#define KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/quantize/quantize.h"

namespace millrace {

struct RmsNormQuantizeArgs {
  TensorView x;                        // [T, H] f32 or bf16; rows may be padded
  std::optional<TensorView> residual;  // [T, H], dtype of x: as RmsNormArgs has it
  TensorView weight;                   // [H] f32 or bf16
  float eps = 0;                       // > 0
  // [T, H], dtype of x: where the normalised rows go too, for who needs them besides the codes.
  std::optional<TensorView> y;
  TensorView codes;  // [T, H] u8, overwritten; rows may be padded
  TensorView scale;  // f32, as QuantizeArgs has it
  // kGroup, kToken, or kTensor with a given scale: what a row determines.
  QuantizeUnit unit = QuantizeUnit::kGroup;
  QuantizeScale rounding = QuantizeScale::kF32;
  QuantizeFormat format = QuantizeFormat::kE4M3;
};

// The bits that RmsNorm() into a tensor of x's dtype and Quantize() of it give on the same device:
// what is quantised is the normalised row as rounded to x's dtype. (A model whose FP8 weights were
// made for a bf16 norm's output sees the same numbers, fused or not.)
//
// Between devices, and instruction sets of the CPU, rows differ by some units of f32 before they
// are rounded: the order of the sum and the reciprocal root are theirs. So a few codes are the next
// ones (tests allow one in 2^12), and a scale, where a unit's largest element is among those that
// differ, that of its neighbour in x's dtype, or the next power of two.
//
// InvalidArgument for operands or choices that do not fit together. ResourceExhausted: workspace
// below RmsNormQuantizeWorkspaceBytes. Unimplemented where the device has no kernel. Worker thread.
absl::Status RmsNormQuantize(const OpContext& ctx, const RmsNormQuantizeArgs& args);

// Workspace that calls of at most `tokens` rows of `size` of `dtype` need.
int64_t RmsNormQuantizeWorkspaceBytes(DType dtype, int64_t tokens, int64_t size);

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_H_
