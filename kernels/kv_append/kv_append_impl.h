// The rows of KvAppend's device table.
#ifndef KERNELS_KV_APPEND_KV_APPEND_IMPL_H_
#define KERNELS_KV_APPEND_KV_APPEND_IMPL_H_

#include "kernels/kv_append/kv_append.h"

namespace millrace {

absl::Status KvAppendCpu(const OpContext& ctx, const KvAppendArgs& args);
absl::Status KvAppendCuda(const OpContext& ctx, const KvAppendArgs& args);

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_KV_APPEND_IMPL_H_
