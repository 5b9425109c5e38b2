#include "kernels/gate_up/gate_up_impl.h"

namespace millrace {

absl::Status GateUpCuda(const OpContext&, const GateUpArgs&) {
  return absl::UnimplementedError("GateUp: this build has no CUDA");
}

}  // namespace millrace
