// The rows of the hyper-connections' device tables.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_

#include <cstdint>

#include "kernels/hyper_connection/hyper_connection.h"

namespace millrace {

absl::Status HyperConnectionBeginCpu(const OpContext& ctx, const HyperConnectionBeginArgs& args);
absl::Status HyperConnectionInCpu(const OpContext& ctx, const HyperConnectionInArgs& args);
absl::Status HyperConnectionOutCpu(const OpContext& ctx, const HyperConnectionOutArgs& args);
absl::Status HyperConnectionHeadCpu(const OpContext& ctx, const HyperConnectionHeadArgs& args);

absl::Status HyperConnectionBeginCuda(const OpContext& ctx, const HyperConnectionBeginArgs& args);
absl::Status HyperConnectionInCuda(const OpContext& ctx, const HyperConnectionInArgs& args);
absl::Status HyperConnectionOutCuda(const OpContext& ctx, const HyperConnectionOutArgs& args);
absl::Status HyperConnectionHeadCuda(const OpContext& ctx, const HyperConnectionHeadArgs& args);

// For an fn of [rows, size].
int64_t HyperConnectionCudaWorkspaceBytes(int64_t max_tokens, int64_t rows, int64_t size);

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_
