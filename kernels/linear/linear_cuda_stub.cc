#include "kernels/linear/linear_impl.h"

namespace millrace {

absl::Status LinearCuda(const OpContext&, const LinearArgs&) {
  return absl::UnimplementedError("Linear: this build has no CUDA");
}

absl::Status LinearCublas(const OpContext&, const LinearArgs&) {
  return absl::UnimplementedError("Linear: this build has no CUDA");
}

int64_t LinearCudaWorkspaceBytes() { return 0; }

}  // namespace millrace
