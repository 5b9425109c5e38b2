#include "kernels/rope_append/rope_append_impl.h"

namespace millrace {

absl::Status RopeAppendCuda(const OpContext&, const RopeAppendArgs&) {
  return absl::UnimplementedError("RopeAppend: this build has no CUDA");
}

}  // namespace millrace
