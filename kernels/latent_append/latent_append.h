// Writes the latent rows of new tokens into the pages of their cache.
#ifndef KERNELS_LATENT_APPEND_LATENT_APPEND_H_
#define KERNELS_LATENT_APPEND_LATENT_APPEND_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct LatentAppendArgs {
  TensorView rows;  // [T, D] f32 or bf16; rows may be padded
  // [T] i64: page * page_tokens + offset in the page, or -1 for none; distinct. Read on the device.
  TensorView slots;
  // [pages, 1, page_tokens, width] f32, bf16 or FP8 rows (kernels/latent_cache/latent_row.h; D is
  // kFp8LatentDim then)
  TensorView store;
};

// store[slot / page_tokens, 0, slot % page_tokens] <- rows[t] for each token with a slot, rounded
// to nearest even. Other rows stay as they are.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for a slot outside the
// store (nothing is written then); elsewhere such a slot counts as none. Unimplemented where the
// device has no kernel. Worker thread.
absl::Status LatentAppend(const OpContext& ctx, const LatentAppendArgs& args);

}  // namespace millrace

#endif  // KERNELS_LATENT_APPEND_LATENT_APPEND_H_
