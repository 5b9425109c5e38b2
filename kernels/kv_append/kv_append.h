// Writes the keys and values of new tokens into the pages of a paged cache.
#ifndef KERNELS_KV_APPEND_KV_APPEND_H_
#define KERNELS_KV_APPEND_KV_APPEND_H_

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct KvAppendArgs {
  TensorView k;  // [T, N, D] f32 or bf16; tokens and heads may be padded
  TensorView v;  // like k
  // [T] i64: page * page_tokens + offset in the page, or -1 for none; distinct. Read on the device,
  // so that a captured graph can be replayed; on CUDA written ahead of the last kernel before this
  // one that is not early (kernels/ptx, the PDL rule).
  TensorView slots;
  // [pages, N, page_tokens, D] f32, bf16, or u8 for E4M3 codes; any strides but the last
  TensorView k_cache;
  TensorView v_cache;  // like k_cache
  TensorView k_scale;  // [N] f32 above 0, of a cache of codes alone: what 1 in the cache stands for
  TensorView v_scale;  // like k_scale
};

// k_cache[slot / page_tokens, n, slot % page_tokens, :] <- k[t, n, :] for each token with a slot,
// and so for v. f32 becomes bf16 by rounding to nearest even. A code is that of x * (1 / scale[n]),
// both operations in f32, then rounded to E4M3, ties to even: beyond 448 it is 448, and NaN is 0x7f
// (as Quantize() has it). Other cache rows stay as they are.
//
// InvalidArgument for operands that do not fit together and, on the CPU, for a slot outside the
// cache (nothing is written then); on CUDA such a slot counts as none. Unimplemented where the
// device has no kernel. Worker thread.
absl::Status KvAppend(const OpContext& ctx, const KvAppendArgs& args);

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_KV_APPEND_H_
