// The rows of LatentRope's device table.
#ifndef KERNELS_LATENT_ROPE_LATENT_ROPE_IMPL_H_
#define KERNELS_LATENT_ROPE_LATENT_ROPE_IMPL_H_

#include "kernels/latent_rope/latent_rope.h"

namespace millrace {

absl::Status LatentRopeCpu(const OpContext& ctx, const LatentRopeArgs& args);
absl::Status LatentRopeCuda(const OpContext& ctx, const LatentRopeArgs& args);

}  // namespace millrace

#endif  // KERNELS_LATENT_ROPE_LATENT_ROPE_IMPL_H_
