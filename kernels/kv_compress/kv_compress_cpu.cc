#include "absl/status/status.h"
#include "kernels/kv_compress/kv_compress_impl.h"

namespace millrace {

absl::Status KvCompressCpu(const OpContext&, const KvCompressArgs&) {
  return absl::UnimplementedError("KvCompress: no kernel for cpu in this build");
}

}  // namespace millrace
