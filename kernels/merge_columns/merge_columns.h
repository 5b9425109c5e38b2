// Puts the column parts of a matrix side by side, as they come from the ranks that hold them.
#ifndef KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_H_
#define KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

inline constexpr int kMergeColumnsMaxParts = 64;

struct MergeColumnsArgs {
  // [R, C] f32, contiguous, but not in this order: the parts lie one after the other, part p as
  // [R, columns[p]].
  TensorView parts;
  // On the host, each >= 0, their sum C, at most kMergeColumnsMaxParts. Read before the call
  // returns.
  absl::Span<const int64_t> columns;
  TensorView y;  // [R, C] f32; rows may be padded; shares no memory with parts
};

// y[r, columns[0] + ... + columns[p - 1] + i] = part p[r, i]
//
// InvalidArgument for operands that do not fit together, Unimplemented where the device has no
// kernel. Worker thread.
absl::Status MergeColumns(const OpContext& ctx, const MergeColumnsArgs& args);

}  // namespace millrace

#endif  // KERNELS_MERGE_COLUMNS_MERGE_COLUMNS_H_
