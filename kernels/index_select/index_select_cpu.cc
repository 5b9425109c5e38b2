#include "absl/status/status.h"
#include "kernels/index_select/index_select_impl.h"

namespace millrace {

absl::Status IndexSelectCpu(const OpContext&, const IndexSelectArgs&) {
  return absl::UnimplementedError("IndexSelect: no kernel for cpu in this build");
}

}  // namespace millrace
namespace millrace {
int64_t IndexSelectWorkspaceBytes(Device&, int64_t, int64_t, int64_t) { return 0; }
}  // namespace millrace
