// Pools windows of consecutive tokens into one cache row each, as they fill up.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"
#include "kernels/latent_cache/paged_batch.h"

namespace millrace {

// A compressor: windows of `ratio` tokens become rows of `dim` channels. With overlap an entry
// pools the window before as well, and the projections have two halves: channels [0, dim) of a
// token are its part in the next window's entry, [dim, 2 dim) in its own's.
struct KvCompressShape {
  int64_t ratio = 0;
  int64_t dim = 0;
  bool overlap = false;

  int64_t projected() const { return overlap ? 2 * dim : dim; }
  // What is kept of a sequence's unfinished windows: token p in row p % state_rows(), its kv and
  // then its score + ape.
  int64_t state_rows() const { return overlap ? 2 * ratio : ratio; }
  int64_t state_width() const { return 2 * projected(); }
  // What a block of tokens leaves to the next with overlap: [ratio, 2, dim], kv and score + ape of
  // the first halves of the block's last `ratio` tokens.
  int64_t carry_width() const { return ratio * 2 * dim; }
};

struct KvCompressArgs {
  TensorView kv;           // [T, C] f32, the raw projections; C = D, or 2 D with overlap
  TensorView score;        // [T, C] f32; rows of both may be padded
  TensorView ape;          // [ratio, C] f32, added to the scores by position in the window
  TensorView norm_weight;  // [D] f32 or bf16
  TensorView inv_freq;  // [R / 2] f32, radians per position; the last R <= D channels are rotated
  PagedBatch batch;
  TensorView state_slots;  // [B] i32: the sequence's slot in `state`; distinct. Read on the device
  TensorView state;        // [slots, state_rows, state_width] f32, in and out, dense
  // With it windows overlap: [pages, 1, blocks of a page, carry_width] f32, in and out. A block is
  // page_tokens / blocks tokens, a multiple of ratio.
  std::optional<TensorView> carry;
  // [pages, 1, page_tokens / ratio, width] f32, bf16 or FP8 rows
  // (kernels/latent_cache/latent_row.h; D is kFp8LatentDim and R kFp8LatentRopeDim then).
  TensorView store;
  float norm_eps = 0;  // > 0
  // Index keys in serving numerics: the row goes through ApplyHadamardFp4
  // (kernels/latent_cache/hadamard_fp4.h) before it is stored.
  bool hadamard_fp4 = false;
};

// Entry s covers positions [s ratio, (s + 1) ratio) and is made in the step that brings its last
// token. Per channel, over its tokens p, with score'(p) = score(p) + ape[p % ratio]:
//   pooled = sum_p softmax_p(score'(p)) kv(p)
// over channel dim + i of its own tokens and channel i of those of window s - 1 (none for s = 0)
// with overlap, over channel i of its own without. Then
//   row = rotate(pooled / sqrt(mean(pooled^2) + norm_eps) * norm_weight)
// at position s * ratio, pairs as in LatentRope, and row s % (page_tokens / ratio) of the
// sequence's page s * ratio / page_tokens <- row.
//
// Tokens before this step's come from `state`, but those of the block before, where the entry is
// the first of its block, from the carry of their page. So a sequence may start, or start again, at
// position 0 or any multiple of a block (without overlap: of ratio), with whatever its slot held
// before; and however a sequence is cut into steps, its rows are the same bit for bit.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for lengths, pages or
// slots out of range (nothing is written then); elsewhere such a sequence counts as one without
// tokens, and such a page as none. Unimplemented where the device has no kernel. Worker thread.
absl::Status KvCompress(const OpContext& ctx, const KvCompressArgs& args);

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_H_
