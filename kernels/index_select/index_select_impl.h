// The rows of IndexSelect's device table.
#ifndef KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_
#define KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_

#include "kernels/index_select/index_select.h"

namespace millrace {

absl::Status IndexSelectCpu(const OpContext& ctx, const IndexSelectArgs& args);

}  // namespace millrace

#endif  // KERNELS_INDEX_SELECT_INDEX_SELECT_IMPL_H_
