#include "kernels/kv_append/kv_append_impl.h"

namespace millrace {

absl::Status KvAppendCuda(const OpContext&, const KvAppendArgs&) {
  return absl::UnimplementedError("KvAppend: this build has no CUDA");
}

}  // namespace millrace
