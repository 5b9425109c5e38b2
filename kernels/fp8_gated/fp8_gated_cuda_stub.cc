#include "kernels/fp8_gated/fp8_gated_impl.h"

namespace millrace {

absl::Status Fp8GatedCuda(const OpContext&, const Fp8GatedArgs&) {
  return absl::UnimplementedError("Fp8Gated: this build has no CUDA");
}

absl::Status Fp8GatedCudaBy(Fp8GatedKernel, const OpContext& ctx, const Fp8GatedArgs& args) {
  return Fp8GatedCuda(ctx, args);
}

}  // namespace millrace
