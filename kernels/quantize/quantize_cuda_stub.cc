#include "kernels/quantize/quantize_impl.h"

namespace millrace {

absl::Status QuantizeCuda(const OpContext&, const QuantizeArgs&) {
  return absl::UnimplementedError("Quantize: this build has no CUDA");
}

}  // namespace millrace
