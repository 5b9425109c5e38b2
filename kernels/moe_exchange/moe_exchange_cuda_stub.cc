#include "kernels/moe_exchange/moe_exchange_impl.h"

namespace millrace {

absl::Status MoeDispatchCuda(const OpContext&, const MoeDispatchArgs&) {
  return absl::UnimplementedError("MoeDispatch: this build has no CUDA");
}

absl::Status MoeCombineCuda(const OpContext&, const MoeCombineArgs&) {
  return absl::UnimplementedError("MoeCombine: this build has no CUDA");
}

}  // namespace millrace
