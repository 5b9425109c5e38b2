#include "kernels/latent_attention/latent_attention_impl.h"

namespace millrace {

absl::Status LatentAttentionCuda(const OpContext&, const LatentAttentionArgs&) {
  return absl::UnimplementedError("LatentAttention: this build has no CUDA");
}

}  // namespace millrace
