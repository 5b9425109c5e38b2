#include "kernels/merge_columns/merge_columns_impl.h"

namespace millrace {

absl::Status MergeColumnsCuda(const OpContext&, const MergeColumnsArgs&) {
  return absl::UnimplementedError("MergeColumns: this build has no CUDA");
}

}  // namespace millrace
