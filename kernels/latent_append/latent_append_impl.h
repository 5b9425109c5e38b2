// The rows of LatentAppend's device table.
#ifndef KERNELS_LATENT_APPEND_LATENT_APPEND_IMPL_H_
#define KERNELS_LATENT_APPEND_LATENT_APPEND_IMPL_H_

#include "kernels/latent_append/latent_append.h"

namespace millrace {

absl::Status LatentAppendCpu(const OpContext& ctx, const LatentAppendArgs& args);
absl::Status LatentAppendCuda(const OpContext& ctx, const LatentAppendArgs& args);

}  // namespace millrace

#endif  // KERNELS_LATENT_APPEND_LATENT_APPEND_IMPL_H_
