#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {

absl::Status PagedAttentionCuda(const OpContext&, const PagedAttentionCall&) {
  return absl::UnimplementedError("PagedAttention: this build has no CUDA");
}

}  // namespace millrace
