#include "kernels/swiglu_quantize/swiglu_quantize_impl.h"

namespace millrace {

absl::Status SwigluQuantizeCuda(const OpContext&, const SwigluQuantizeArgs&) {
  return absl::UnimplementedError("SwigluQuantize: this build has no CUDA");
}

}  // namespace millrace
