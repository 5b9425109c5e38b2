// The rows of KvCompress's device table.
#ifndef KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_
#define KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_

#include "kernels/kv_compress/kv_compress.h"

namespace millrace {

// Channels of a row, which bounds what a thread keeps of one.
inline constexpr int64_t kMaxCompressedDim = 1024;

// Of operands that fit together.
inline KvCompressShape KvCompressShapeOf(const KvCompressArgs& args) {
  const bool overlap = args.carry.has_value();
  const int64_t projected = args.kv.dim(1);
  return {.ratio = args.ape.dim(0), .dim = overlap ? projected / 2 : projected, .overlap = overlap};
}

absl::Status KvCompressCpu(const OpContext& ctx, const KvCompressArgs& args);
absl::Status KvCompressCuda(const OpContext& ctx, const KvCompressArgs& args);

}  // namespace millrace

#endif  // KERNELS_KV_COMPRESS_KV_COMPRESS_IMPL_H_
