#include "absl/status/status.h"
#include "kernels/latent_append/latent_append_impl.h"

namespace millrace {

absl::Status LatentAppendCpu(const OpContext&, const LatentAppendArgs&) {
  return absl::UnimplementedError("LatentAppend: no kernel for cpu in this build");
}

}  // namespace millrace
