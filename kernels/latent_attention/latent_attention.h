// Attention to one latent row per token that is both key and value: a window of the last tokens,
// compressed rows of all before, and a sink.
#ifndef KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_H_
#define KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

struct LatentAttentionArgs {
  TensorView q;  // [T, N, D] f32 or bf16; tokens and heads may be padded. D is a multiple of 16
  // [pages, 1, page_tokens, width]: f32, bf16 or FP8 rows (kernels/latent_cache/latent_row.h; D is
  // kFp8LatentDim then), this step's included.
  TensorView window_rows;
  // [pages, 1, page_tokens / ratio, width], dtype of window_rows: a row for every `ratio` tokens.
  std::optional<TensorView> compressed_rows;
  // [T, K] i32, with compressed_rows only: the entries to attend to. -1, and an entry that the
  // token does not see, count for nothing. Without it: all that the token sees.
  std::optional<TensorView> selected;
  TensorView sinks;  // [N] f32
  PagedBatch batch;
  TensorView out;      // [T, N, D], dtype of q; tokens and heads may be padded; not q
  int64_t window = 0;  // tokens, >= 1
  float scale = 0;     // multiplies q.k before the softmax
};

// The token at position p sees the rows of positions max(0, p - window + 1) to p, and of the
// compressed entries those below (p + 1) / ratio that are selected. Over these rows k, in f32:
//   out[t, n] = sum_k e^(scale q.k) k / (sum_k e^(scale q.k) + e^sinks[n])
// where CUDA may round each e^... of the upper sum to bf16 if q is bf16.
// Cache rows that a token does not see never matter to it, and its result depends on that token
// alone, bit for bit. Rows of `out` that belong to no sequence are not written.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for lengths or pages out
// of range; Unimplemented where the device has no kernel; ResourceExhausted when the workspace is
// smaller than LatentAttentionWorkspaceBytes(). Worker thread.
absl::Status LatentAttention(const OpContext& ctx, const LatentAttentionArgs& args);

// Workspace that suffices for N heads of D channels, whatever the batch.
int64_t LatentAttentionWorkspaceBytes(Device& device, int64_t heads, int64_t dim);

}  // namespace millrace

#endif  // KERNELS_LATENT_ATTENTION_LATENT_ATTENTION_H_
