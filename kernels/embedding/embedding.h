// Rows of the embedding table, for one rank's part of the vocabulary.
#ifndef KERNELS_EMBEDDING_EMBEDDING_H_
#define KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

struct EmbeddingArgs {
  TensorView ids;        // [T] i32, read on the device
  TensorView table;      // [V, H] f32 or bf16: the rows of ids first_id .. first_id + V - 1
  int32_t first_id = 0;  // >= 0
  TensorView y;          // [T, H] f32 or bf16; rows may be padded
};

// y[t, :] = table[ids[t] - first_id, :], or zeros for an id of another rank's part, so that the sum
// over ranks is the whole lookup.
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status Embedding(const OpContext& ctx, const EmbeddingArgs& args);

}  // namespace millrace

#endif  // KERNELS_EMBEDDING_EMBEDDING_H_
