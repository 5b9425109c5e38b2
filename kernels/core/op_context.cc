#include "kernels/core/op_context.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace millrace {

absl::StatusOr<void*> WorkspaceScope::Take(int64_t bytes) {
  const int64_t rounded = (bytes + 255) / 256 * 256;
  const int64_t left = workspace_.bytes_ - workspace_.used_;
  if (bytes < 0 || rounded > left) {
    return absl::ResourceExhaustedError(absl::StrCat("Workspace: an op asks for ", bytes,
                                                     " bytes, ", left, " of ", workspace_.bytes_,
                                                     " are left"));
  }
  void* out = workspace_.base_ + workspace_.used_;
  workspace_.used_ += rounded;
  workspace_.peak_ = std::max(workspace_.peak_, workspace_.used_);
  return out;
}

}  // namespace millrace
