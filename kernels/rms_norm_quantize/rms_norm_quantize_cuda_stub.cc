#include "kernels/rms_norm_quantize/rms_norm_quantize_impl.h"

namespace millrace {

absl::Status RmsNormQuantizeCuda(const OpContext&, const RmsNormQuantizeArgs&) {
  return absl::UnimplementedError("RmsNormQuantize: this build has no CUDA");
}

}  // namespace millrace
