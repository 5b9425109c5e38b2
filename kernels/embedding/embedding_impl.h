// The rows of Embedding's device table.
#ifndef KERNELS_EMBEDDING_EMBEDDING_IMPL_H_
#define KERNELS_EMBEDDING_EMBEDDING_IMPL_H_

#include "kernels/embedding/embedding.h"

namespace millrace {

absl::Status EmbeddingCpu(const OpContext& ctx, const EmbeddingArgs& args);
absl::Status EmbeddingCuda(const OpContext& ctx, const EmbeddingArgs& args);

}  // namespace millrace

#endif  // KERNELS_EMBEDDING_EMBEDDING_IMPL_H_
