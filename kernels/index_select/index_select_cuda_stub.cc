#include "kernels/index_select/index_select_impl.h"

namespace millrace {

absl::Status IndexSelectCuda(const OpContext&, const IndexSelectArgs&) {
  return absl::UnimplementedError("IndexSelect: this build has no CUDA");
}

int64_t IndexSelectCudaWorkspaceBytes(int64_t, int64_t, int64_t) { return 0; }

}  // namespace millrace
