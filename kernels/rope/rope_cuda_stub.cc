#include "kernels/rope/rope_impl.h"

namespace millrace {

absl::Status RopeCuda(const OpContext&, const RopeArgs&) {
  return absl::UnimplementedError("Rope: this build has no CUDA");
}

}  // namespace millrace
