// Rotary position embedding of a step's queries and keys, and the keys' and values' way into the
// paged cache, in one pass.
#ifndef KERNELS_ROPE_APPEND_ROPE_APPEND_H_
#define KERNELS_ROPE_APPEND_ROPE_APPEND_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// T tokens, N query heads, M key heads of D elements; D is even and at most 512. Tokens and heads
// may be padded: q, k and v are usually parts of one qkv row.
struct RopeAppendArgs {
  TensorView q;  // [T, N, D] f32 or bf16, rotated in place
  TensorView k;  // [T, M, D], dtype of q; stays as it is
  TensorView v;  // [T, M, D], dtype of q
  // [T] i32; like slots read on the device, so that a captured graph can be replayed, and on CUDA
  // written ahead of the last kernel before this one that is not early (kernels/ptx, the PDL rule).
  TensorView positions;
  TensorView inv_freq;  // [D/2] f32, radians per position (kernels/rope/rope_frequencies.h)
  TensorView slots;  // [T] i64: page * page_tokens + offset in the page, or -1 for none; distinct
  // [pages, M, page_tokens, D] f32, bf16, or u8 for E4M3 codes; any strides but the last
  TensorView k_cache;
  TensorView v_cache;  // like k_cache
  TensorView k_scale;  // [M] f32 above 0, of a cache of codes alone: what 1 in the cache stands for
  TensorView v_scale;  // like k_scale
};

// q <- R(q), k_cache[slot / page_tokens, m, slot % page_tokens, :] <- R(k[t, m, :]), and v_cache so
// from v without R. R turns the pairs (i, i + D/2) by position * inv_freq[i], as Rope() does. In
// f32, rounded once to the dtype of q and of the cache; codes are made as KvAppend() makes them.
// Other cache rows stay as they are; the query of a token without a slot is rotated all the same.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for a slot outside the
// cache (nothing is written then); on CUDA such a slot counts as none. Unimplemented where the
// device has no kernel. Worker thread.
absl::Status RopeAppend(const OpContext& ctx, const RopeAppendArgs& args);

}  // namespace millrace

#endif  // KERNELS_ROPE_APPEND_ROPE_APPEND_H_
