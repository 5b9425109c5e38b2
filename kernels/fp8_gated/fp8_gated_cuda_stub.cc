#include "kernels/fp8_gated/fp8_gated_impl.h"

namespace millrace {

absl::Status Fp8GatedCuda(const OpContext&, const Fp8GatedArgs&) {
  return absl::UnimplementedError("Fp8Gated: this build has no CUDA");
}

}  // namespace millrace
