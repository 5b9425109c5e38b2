#include "kernels/kv_compress/kv_compress_impl.h"

namespace millrace {

absl::Status KvCompressCuda(const OpContext&, const KvCompressArgs&) {
  return absl::UnimplementedError("KvCompress: this build has no CUDA");
}

}  // namespace millrace
