#include "kernels/rms_norm_quantize/rms_norm_quantize_impl.h"

namespace millrace {

absl::Status RmsNormQuantizeCuda(const OpContext& ctx, const RmsNormQuantizeArgs& args) {
  return RmsNormThenQuantize(ctx, args);
}

}  // namespace millrace
