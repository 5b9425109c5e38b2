// Embedding: rows of a table, chosen by token ids.
#ifndef KERNELS_EMBEDDING_EMBEDDING_H_
#define KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// T tokens, H width, V rows of the vocabulary on this rank. Rows may be padded.
struct EmbeddingArgs {
  TensorView ids;           // [T] i32
  TensorView table;         // [V, H] f32 or bf16
  int64_t vocab_begin = 0;  // the id of the table's first row
  TensorView out;           // [T, H] f32 or bf16, overwritten
};

// out[t] = table[ids[t] - vocab_begin], or zeros for an id outside the table: the ranks of a
// vocabulary-parallel table add their results. So no id is refused here.
// InvalidArgument: shapes, dtypes, negative vocab_begin. Unimplemented: no kernel for the device.
absl::Status Embedding(const OpContext& ctx, const EmbeddingArgs& args);

}  // namespace millrace

#endif  // KERNELS_EMBEDDING_EMBEDDING_H_
