// The rows of IndexSelect's device table.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_

#include "kernels/index_select/index_select.h"

namespace millrace {

absl::Status IndexSelectCpu(const OpContext& ctx, const IndexSelectArgs& args);
absl::Status IndexSelectCuda(const OpContext& ctx, const IndexSelectArgs& args);

int64_t IndexSelectCpuWorkspaceBytes(Device& device, int64_t heads, int64_t dim,
                                     int64_t max_entries);
int64_t IndexSelectCudaWorkspaceBytes(int64_t heads, int64_t dim, int64_t max_entries);

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_
