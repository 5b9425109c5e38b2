// The rows of MergeColumns' device table.
#ifndef KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_IMPL_H_
#define KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_IMPL_H_

#include "kernels/merge_columns/merge_columns.h"

namespace millrace {

absl::Status MergeColumnsCpu(const OpContext& ctx, const MergeColumnsArgs& args);
absl::Status MergeColumnsCuda(const OpContext& ctx, const MergeColumnsArgs& args);

}  // namespace millrace

#endif  // KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_IMPL_H_
