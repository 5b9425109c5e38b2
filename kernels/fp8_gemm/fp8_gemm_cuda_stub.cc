#include "kernels/fp8_gemm/fp8_gemm_impl.h"

namespace millrace {

absl::Status Fp8GemmCuda(const OpContext&, const Fp8GemmArgs&) {
  return absl::UnimplementedError("Fp8Gemm: this build has no CUDA");
}

absl::Status Fp8GemmCudaBy(Fp8GemmKernel kernel, const OpContext& ctx, const Fp8GemmArgs& args) {
  return Fp8GemmCuda(ctx, args);
}

int64_t Fp8GemmCudaWorkspaceBytes(int32_t) { return 0; }
int64_t Fp8GemmCudaFlags(int32_t) { return 0; }

}  // namespace millrace
