// The rows of the hyper-connections' device tables.
#ifndef KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_
#define KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_

#include "kernels/hyper_connection/hyper_connection.h"

namespace millrace {

absl::Status HyperConnectionBeginCpu(const OpContext& ctx, const HyperConnectionBeginArgs& args);
absl::Status HyperConnectionInCpu(const OpContext& ctx, const HyperConnectionInArgs& args);
absl::Status HyperConnectionOutCpu(const OpContext& ctx, const HyperConnectionOutArgs& args);
absl::Status HyperConnectionHeadCpu(const OpContext& ctx, const HyperConnectionHeadArgs& args);

}  // namespace millrace

#endif  // KERNELS_HYPER_CONNECTION_HYPER_CONNECTION_IMPL_H_
