// The rows of RmsNormQuantize's device table.
#ifndef KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_IMPL_H_
#define KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_IMPL_H_

#include "kernels/quantize/quantize.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize.h"

namespace millrace {

absl::Status RmsNormQuantizeCuda(const OpContext& ctx, const RmsNormQuantizeArgs& args);

// By the two ops, on any device: the CPU's row, and what the GPU's kernel does not take.
absl::Status RmsNormThenQuantize(const OpContext& ctx, const RmsNormQuantizeArgs& args);

// The operands of the two, with `y` between them.
inline RmsNormArgs NormArgsOf(const RmsNormQuantizeArgs& args, const TensorView& y) {
  return {.x = args.x, .residual = args.residual, .weight = args.weight, .y = y, .eps = args.eps};
}
inline QuantizeArgs QuantizeArgsOf(const RmsNormQuantizeArgs& args, const TensorView& y) {
  return {.x = y,
          .codes = args.codes,
          .scale = args.scale,
          .unit = args.unit,
          .rounding = args.rounding,
          .format = args.format};
}

}  // namespace millrace

#endif  // KERNELS_RMS_NORM_QUANTIZE_RMS_NORM_QUANTIZE_IMPL_H_
