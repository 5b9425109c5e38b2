// The rows of StoredLinear's device table.
#ifndef KERNELS_STORED_LINEAR_STORED_LINEAR_IMPL_H_
#define KERNELS_STORED_LINEAR_STORED_LINEAR_IMPL_H_

#include <cstdint>

#include "kernels/stored_linear/stored_linear.h"

namespace millrace {

absl::Status StoredLinearCpu(const OpContext& ctx, const StoredLinearArgs& args);
int64_t StoredLinearCpuWorkspaceBytes(int threads, int64_t max_inputs);

absl::Status StoredLinearCuda(const OpContext& ctx, const StoredLinearArgs& args);
int64_t StoredLinearCudaWorkspaceBytes(int64_t max_inputs);

}  // namespace millrace

#endif  // KERNELS_STORED_LINEAR_STORED_LINEAR_IMPL_H_
