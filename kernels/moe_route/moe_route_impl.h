// The rows of the routers' device tables.
#ifndef KERNELS_MOE_ROUTE_MOE_ROUTE_IMPL_H_
#define KERNELS_MOE_ROUTE_MOE_ROUTE_IMPL_H_

#include "kernels/moe_route/moe_route.h"

namespace millrace {

absl::Status MoeRouteByScoreCpu(const OpContext& ctx, const MoeRouteByScoreArgs& args);
absl::Status MoeRouteByHashCpu(const OpContext& ctx, const MoeRouteByHashArgs& args);
absl::Status MoeRouteByScoreCuda(const OpContext& ctx, const MoeRouteByScoreArgs& args);
absl::Status MoeRouteByHashCuda(const OpContext& ctx, const MoeRouteByHashArgs& args);

}  // namespace millrace

#endif  // KERNELS_MOE_ROUTE_MOE_ROUTE_IMPL_H_
