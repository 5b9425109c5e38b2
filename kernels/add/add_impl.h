// The rows of Add's device table.
#ifndef KERNELS_ADD_ADD_IMPL_H_
#define KERNELS_ADD_ADD_IMPL_H_

#include "kernels/add/add.h"

namespace millrace {

absl::Status AddCpu(const OpContext& ctx, const AddArgs& args);
absl::Status AddCuda(const OpContext& ctx, const AddArgs& args);

}  // namespace millrace

#endif  // KERNELS_ADD_ADD_IMPL_H_
