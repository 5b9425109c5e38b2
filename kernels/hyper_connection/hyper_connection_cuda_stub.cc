#include "kernels/hyper_connection/hyper_connection_impl.h"

namespace millrace {

int64_t HyperConnectionCudaWorkspaceBytes(int64_t, int64_t, int64_t) { return 0; }

absl::Status HyperConnectionBeginCuda(const OpContext&, const HyperConnectionBeginArgs&) {
  return absl::UnimplementedError("HyperConnectionBegin: this build has no CUDA");
}

absl::Status HyperConnectionInCuda(const OpContext&, const HyperConnectionInArgs&) {
  return absl::UnimplementedError("HyperConnectionIn: this build has no CUDA");
}

absl::Status HyperConnectionOutCuda(const OpContext&, const HyperConnectionOutArgs&) {
  return absl::UnimplementedError("HyperConnectionOut: this build has no CUDA");
}

absl::Status HyperConnectionHeadCuda(const OpContext&, const HyperConnectionHeadArgs&) {
  return absl::UnimplementedError("HyperConnectionHead: this build has no CUDA");
}

}  // namespace millrace
