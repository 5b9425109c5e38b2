#include "kernels/sample/sample_impl.h"

namespace millrace {

absl::Status SampleCuda(const OpContext&, const SampleArgs&) {
  return absl::UnimplementedError("Sample: this build has no CUDA");
}

absl::Status TokenLogprobsCuda(const OpContext&, const TokenLogprobsArgs&) {
  return absl::UnimplementedError("TokenLogprobs: this build has no CUDA");
}

int64_t SampleCudaWorkspaceBytes(int64_t, int64_t) { return 0; }

}  // namespace millrace
