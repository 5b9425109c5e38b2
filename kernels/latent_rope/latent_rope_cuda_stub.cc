#include "kernels/latent_rope/latent_rope_impl.h"

namespace millrace {

absl::Status LatentRopeCuda(const OpContext&, const LatentRopeArgs&) {
  return absl::UnimplementedError("LatentRope: this build has no CUDA");
}

}  // namespace millrace
