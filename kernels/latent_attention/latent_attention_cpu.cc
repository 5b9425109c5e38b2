#include "absl/status/status.h"
#include "kernels/latent_attention/latent_attention_impl.h"

namespace millrace {

absl::Status LatentAttentionCpu(const OpContext&, const LatentAttentionArgs&) {
  return absl::UnimplementedError("LatentAttention: no kernel for cpu in this build");
}

}  // namespace millrace
namespace millrace {
int64_t LatentAttentionWorkspaceBytes(Device&, int64_t, int64_t) { return 0; }
}  // namespace millrace
