#include "kernels/latent_append/latent_append_impl.h"

namespace millrace {

absl::Status LatentAppendCuda(const OpContext&, const LatentAppendArgs&) {
  return absl::UnimplementedError("LatentAppend: this build has no CUDA");
}

}  // namespace millrace
