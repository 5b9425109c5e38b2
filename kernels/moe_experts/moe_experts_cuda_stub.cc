#include "kernels/moe_experts/moe_experts_impl.h"

namespace millrace {

absl::Status MoeExpertsCuda(const OpContext&, const MoeExpertsArgs&) {
  return absl::UnimplementedError("MoeExperts: this build has no CUDA");
}

int64_t MoeExpertsCudaWorkspaceBytes(const MoeExpertsShape&) { return 0; }

}  // namespace millrace
