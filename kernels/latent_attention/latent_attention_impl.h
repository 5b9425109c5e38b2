// The rows of LatentAttention's device table.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_IMPL_H_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_IMPL_H_

#include "kernels/latent_attention/latent_attention.h"

namespace millrace {

absl::Status LatentAttentionCpu(const OpContext& ctx, const LatentAttentionArgs& args);
absl::Status LatentAttentionCuda(const OpContext& ctx, const LatentAttentionArgs& args);

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_IMPL_H_
