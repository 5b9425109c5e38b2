// Rows of the embedding table, for one rank's part of the vocabulary.
#ifndef KERNELS_EMBEDDING_EMBEDDING_H_
#define KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct EmbeddingArgs {
  // [T] i32, read on the device. -1 - s names slot s: the id is last_tokens[s].
  TensorView ids;
  // [slots] i32, read on the device: the token sampled last in each slot, which may never have left
  // the device.
  std::optional<TensorView> last_tokens;
  TensorView table;      // [V, H] f32 or bf16: the rows of ids first_id .. first_id + V - 1
  int32_t first_id = 0;  // >= 0
  TensorView y;          // [T, H] f32 or bf16; rows may be padded
};

// y[t, :] = table[id - first_id, :] where id is ids[t] or the token of the slot that it names.
// Zeros for an id of another rank's part, so that the sum over ranks is the whole lookup; also for
// a slot that last_tokens does not have, and for one that holds a negative id.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Embedding(const OpContext& ctx, const EmbeddingArgs& args);

}  // namespace millrace

#endif  // KERNELS_EMBEDDING_EMBEDDING_H_
