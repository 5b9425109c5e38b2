#include "kernels/embedding/embedding_impl.h"

namespace millrace {

absl::Status EmbeddingCuda(const OpContext&, const EmbeddingArgs&) {
  return absl::UnimplementedError("Embedding: this build has no CUDA");
}

}  // namespace millrace
