// Which experts a token goes to, and with what weights.
#ifndef KERNELS_MOE_ROUTE_MOE_ROUTE_H_
#define KERNELS_MOE_ROUTE_MOE_ROUTE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// With score[e] = sqrt(softplus(logits[e])), softplus(x) = log(1 + e^x), in f32:
//   experts = the K experts of the largest score + bias, in falling order; equal ones by lower id.
//             NaN counts as the lowest.
//   weights = score (without bias) / sum of the K scores * scaling; zeros when that sum is zero.
// A NaN among a token's chosen scores makes all its weights NaN.
struct MoeRouteByScoreArgs {
  TensorView logits;   // [T, E] f32; rows may be padded
  TensorView bias;     // [E] f32: takes part in choosing only
  TensorView experts;  // [T, K] i32, 1 <= K <= E
  TensorView weights;  // [T, K] f32
  float scaling = 0;   // > 0
};

// The experts are the token id's row of a table, in its order; the weights as above. An id outside
// the table, or a table entry that is no expert, gives expert -1 with weight 0, and the others of
// the row are normalised without it.
struct MoeRouteByHashArgs {
  TensorView logits;  // [T, E] f32; rows may be padded
  // [T] i32, read on the device. As in Embedding, -1 - s names slot s: the id is last_tokens[s].
  TensorView ids;
  std::optional<TensorView> last_tokens;  // [slots] i32, read on the device
  TensorView table;                       // [V, K] i32
  TensorView experts;                     // [T, K] i32
  TensorView weights;                     // [T, K] f32
  float scaling = 0;                      // > 0
};

// InvalidArgument for operands that do not fit together or a scaling that is not positive,
// Unimplemented where the device has no kernel. A token's results depend on that token alone, bit
// for bit, and are the same bits on every device (but a NaN's). Worker thread.
absl::Status MoeRouteByScore(const OpContext& ctx, const MoeRouteByScoreArgs& args);
absl::Status MoeRouteByHash(const OpContext& ctx, const MoeRouteByHashArgs& args);

}  // namespace millrace

#endif  // KERNELS_MOE_ROUTE_MOE_ROUTE_H_
