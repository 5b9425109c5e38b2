#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"

namespace millrace {

absl::Status Fp8GroupedGemmCuda(const OpContext&, const Fp8GroupedGemmArgs&) {
  return absl::UnimplementedError("Fp8GroupedGemm: this build has no CUDA");
}

}  // namespace millrace
