#include "kernels/swiglu/swiglu_impl.h"

namespace millrace {

absl::Status SwigluCuda(const OpContext&, const SwigluArgs&) {
  return absl::UnimplementedError("Swiglu: this build has no CUDA");
}

}  // namespace millrace
