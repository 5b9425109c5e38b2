#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm_impl.h"

namespace millrace {

absl::Status QuantizeFp8GemmCuda(const OpContext&, const QuantizeFp8GemmArgs&) {
  return absl::UnimplementedError("QuantizeFp8Gemm: this build has no CUDA");
}

}  // namespace millrace
