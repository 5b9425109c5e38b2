#include "kernels/swiglu_quantize/swiglu_quantize_impl.h"

namespace millrace {

absl::Status SwigluQuantizeCuda(const OpContext& ctx, const SwigluQuantizeArgs& args) {
  return SwigluThenQuantize(ctx, args);
}

}  // namespace millrace
