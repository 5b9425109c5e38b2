// Tokens on their way to the ranks that hold their experts, and back.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_H_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// A row of a message, in f32 words: a token's D channels, then its K weights, then its K experts,
// those as i32 bits.
constexpr int64_t MoeMessageWidth(int64_t hidden, int64_t chosen) { return hidden + 2 * chosen; }
// The parts of rows [N, MoeMessageWidth] of messages: [N, D] f32, [N, K] f32, [N, K] i32.
TensorView MoeMessageChannels(const TensorView& rows, int64_t chosen);
TensorView MoeMessageWeights(const TensorView& rows, int64_t chosen);
TensorView MoeMessageExperts(const TensorView& rows, int64_t chosen);

// T tokens of D channels, K choices a token, W ranks. Rows of the inputs may be padded.
struct MoeDispatchArgs {
  TensorView x;        // [T, D] f32 or bf16
  TensorView experts;  // [T, K] i32, of all ranks' experts
  TensorView weights;  // [T, K] f32
  // Each rank holds a run of them, in rank order, as equal as can be: the first num_experts % W
  // ranks hold one more.
  int64_t num_experts = 0;
  TensorView rows;    // [R, MoeMessageWidth(D, K)] f32, dense; R >= T * min(K, W)
  TensorView source;  // [R] i32: the token of each row
  TensorView counts;  // [W] i32: rows for each rank
};

// Each token makes one row for every rank that holds one of its experts; an expert that is
// none counts for none. Rows lie by rank, and of one rank by token. What of `rows` and `source`
// lies behind them is left as it is.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status MoeDispatch(const OpContext& ctx, const MoeDispatchArgs& args);

// What came back for the first N rows.
struct MoeCombineArgs {
  TensorView rows;    // [N, D] f32; may be padded
  TensorView source;  // [N] i32, of MoeDispatch
  TensorView y;       // [T, D] f32; may be padded
};

// y[t] = sum of the rows of token t, in their order; zeros where it has none. Rows of other tokens
// than [0, T) count for nothing.
//
// Errors as above. Worker thread.
absl::Status MoeCombine(const OpContext& ctx, const MoeCombineArgs& args);

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_H_
