#include "kernels/fp8_gate_up/fp8_gate_up_impl.h"

namespace millrace {

absl::Status Fp8GateUpCuda(const OpContext&, const Fp8GateUpArgs&) {
  return absl::UnimplementedError("Fp8GateUp: this build has no CUDA");
}

}  // namespace millrace
