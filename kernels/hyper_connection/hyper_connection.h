// Manifold-constrained hyper-connections: a residual of S streams in place of one, mixed into a
// sublayer's input and out of its output by weights that each token computes from its own streams.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int64_t kMaxHyperStreams = 8;

// streams[j] <- x for every j: the residual at its start.
struct HyperConnectionBeginArgs {
  TensorView x;        // [T, D] f32 or bf16; rows may be padded
  TensorView streams;  // [T, S, D], dtype of x
};

// From a token's streams, flattened to S * D values z and with M = (2 + S) * S:
//   m = fn . z / sqrt(mean(z^2) + norm_eps)                                     M values
//   pre[j]  = sigmoid(m[j] * scale[0] + base[j]) + hc_eps
//   post[j] = 2 * sigmoid(m[S + j] * scale[1] + base[S + j])
//   C[j,k]  = softmax over k of (m[i] * scale[2] + base[i]) + hc_eps,   i = 2S + j * S + k
//   comb    = C with each column divided by its sum + hc_eps, then sinkhorn_iters - 1 times each
//             row and then each column divided by its sum + hc_eps
//   x[i]    = sum over j of pre[j] * streams[j, i]
// in f32, x rounded once.
struct HyperConnectionInArgs {
  TensorView streams;          // [T, S, D] f32 or bf16; tokens and streams may be padded
  TensorView fn;               // [M, S * D] f32
  TensorView base;             // [M] f32
  TensorView scale;            // [3] f32
  TensorView x;                // [T, D], dtype of streams: the sublayer's input, before its norm
  TensorView post;             // [T, S] f32, for HyperConnectionOut
  TensorView comb;             // [T, S, S] f32, for HyperConnectionOut
  float norm_eps = 0;          // > 0
  float hc_eps = 0;            // >= 0
  int32_t sinkhorn_iters = 0;  // >= 1
};

// streams[k] <- post[k] * out + sum over j of comb[j, k] * streams[j], in f32, rounded once.
struct HyperConnectionOutArgs {
  TensorView out;      // [T, D], dtype of streams: the sublayer's output
  TensorView post;     // [T, S] f32
  TensorView comb;     // [T, S, S] f32
  TensorView streams;  // [T, S, D] f32 or bf16, in and out
};

// y = sum over j of (sigmoid(m[j] * scale[0] + base[j]) + hc_eps) * streams[j], with m as above but
// of S values: what the final norm gets.
struct HyperConnectionHeadArgs {
  TensorView streams;  // [T, S, D] f32 or bf16
  TensorView fn;       // [S, S * D] f32
  TensorView base;     // [S] f32
  TensorView scale;    // [1] f32
  TensorView y;        // [T, D], dtype of streams
  float norm_eps = 0;  // > 0
  float hc_eps = 0;    // >= 0
};

// InvalidArgument for operands that do not fit together, more than kMaxHyperStreams streams or a
// parameter out of range, Unimplemented where the device has no kernel, ResourceExhausted from In
// and Head for a workspace below HyperConnectionWorkspaceBytes(). A token's results depend on that
// token alone, bit for bit. Worker thread.
absl::Status HyperConnectionBegin(const OpContext& ctx, const HyperConnectionBeginArgs& args);
absl::Status HyperConnectionIn(const OpContext& ctx, const HyperConnectionInArgs& args);
absl::Status HyperConnectionOut(const OpContext& ctx, const HyperConnectionOutArgs& args);
absl::Status HyperConnectionHead(const OpContext& ctx, const HyperConnectionHeadArgs& args);

// For calls of up to `max_tokens` tokens of `streams` streams of `width` elements; 0 on the CPU.
int64_t HyperConnectionWorkspaceBytes(Device& device, int64_t max_tokens, int64_t streams,
                                      int64_t width);

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_H_
