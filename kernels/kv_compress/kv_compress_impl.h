// The rows of KvCompress's device table.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_

#include "kernels/kv_compress/kv_compress.h"

namespace millrace {

// Channels of a row, which bounds what a thread keeps of one.
inline constexpr int64_t kMaxCompressedDim = 1024;

absl::Status KvCompressCpu(const OpContext& ctx, const KvCompressArgs& args);

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_
