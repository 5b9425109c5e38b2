// The rows of SwigluQuantize's device table.
#ifndef KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_IMPL_H_
#define KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_IMPL_H_

#include "kernels/quantize/quantize.h"
#include "kernels/swiglu/swiglu.h"
#include "kernels/swiglu_quantize/swiglu_quantize.h"

namespace millrace {

absl::Status SwigluQuantizeCuda(const OpContext& ctx, const SwigluQuantizeArgs& args);

// By the two ops, on any device: the CPU's row, and what the GPU's kernels do not take.
absl::Status SwigluThenQuantize(const OpContext& ctx, const SwigluQuantizeArgs& args);

// The operands of the two, with `y` between them.
inline SwigluArgs SwigluArgsOf(const SwigluQuantizeArgs& args, const TensorView& y) {
  return {.x = args.x, .y = y, .block = args.block, .limit = args.limit};
}
inline QuantizeArgs QuantizeArgsOf(const SwigluQuantizeArgs& args, const TensorView& y) {
  return {.x = y,
          .codes = args.codes,
          .scale = args.scale,
          .unit = args.unit,
          .rounding = args.rounding,
          .format = args.format};
}

}  // namespace millrace

#endif  // KERNELS_SWIGLU_QUANTIZE_SWIGLU_QUANTIZE_IMPL_H_
