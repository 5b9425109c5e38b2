// The row of AllReduceRmsNorm's device table.
#ifndef KERNELS_ALL_REDUCE_ALL_REDUCE_IMPL_H_
#define KERNELS_ALL_REDUCE_ALL_REDUCE_IMPL_H_

#include "kernels/all_reduce/all_reduce.h"

namespace millrace {

absl::Status AllReduceRmsNormCuda(const OpContext& ctx, const AllReduceRmsNormArgs& args);

}  // namespace millrace

#endif  // KERNELS_ALL_REDUCE_ALL_REDUCE_IMPL_H_
