// The rows of MoeExperts' device table.
#ifndef KERNELS_MOE_EXPERTS_MOE_EXPERTS_IMPL_H_
#define KERNELS_MOE_EXPERTS_MOE_EXPERTS_IMPL_H_

#include <cstdint>

#include "kernels/moe_experts/moe_experts.h"

namespace millrace {

absl::Status MoeExpertsCpu(const OpContext& ctx, const MoeExpertsArgs& args);
int64_t MoeExpertsCpuWorkspaceBytes(int threads, const MoeExpertsShape& shape);

absl::Status MoeExpertsCuda(const OpContext& ctx, const MoeExpertsArgs& args);
int64_t MoeExpertsCudaWorkspaceBytes(const MoeExpertsShape& shape);

}  // namespace millrace

#endif  // KERNELS_MOE_EXPERTS_MOE_EXPERTS_IMPL_H_
