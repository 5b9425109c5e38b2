#include "kernels/moe_route/moe_route_impl.h"

namespace millrace {

absl::Status MoeRouteByScoreCuda(const OpContext&, const MoeRouteByScoreArgs&) {
  return absl::UnimplementedError("MoeRouteByScore: this build has no CUDA");
}

absl::Status MoeRouteByHashCuda(const OpContext&, const MoeRouteByHashArgs&) {
  return absl::UnimplementedError("MoeRouteByHash: this build has no CUDA");
}

}  // namespace millrace
