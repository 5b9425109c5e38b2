#include "kernels/bench/cuda_bench.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<CudaBench>> CudaBench::Create(Device&) {
  return absl::UnimplementedError("CudaBench: this build has no CUDA");
}

}  // namespace millrace
