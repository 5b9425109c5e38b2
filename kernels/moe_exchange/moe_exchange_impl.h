// The rows of the device tables of MoeDispatch and MoeCombine.
#ifndef KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_IMPL_H_
#define KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_IMPL_H_

#include "kernels/moe_exchange/moe_exchange.h"

namespace millrace {

absl::Status MoeDispatchCpu(const OpContext& ctx, const MoeDispatchArgs& args);
absl::Status MoeCombineCpu(const OpContext& ctx, const MoeCombineArgs& args);
absl::Status MoeDispatchCuda(const OpContext& ctx, const MoeDispatchArgs& args);
absl::Status MoeCombineCuda(const OpContext& ctx, const MoeCombineArgs& args);

}  // namespace millrace

#endif  // KERNELS_MOE_EXCHANGE_MOE_EXCHANGE_IMPL_H_
