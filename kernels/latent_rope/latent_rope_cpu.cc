#include "absl/status/status.h"
#include "kernels/latent_rope/latent_rope_impl.h"

namespace millrace {

absl::Status LatentRopeCpu(const OpContext&, const LatentRopeArgs&) {
  return absl::UnimplementedError("LatentRope: no kernel for cpu in this build");
}

}  // namespace millrace
