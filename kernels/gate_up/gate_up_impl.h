// The rows of GateUp's device table.
#ifndef KERNELS_GATE_UP_GATE_UP_IMPL_H_
#define KERNELS_GATE_UP_GATE_UP_IMPL_H_

#include "kernels/gate_up/gate_up.h"

namespace millrace {

absl::Status GateUpCuda(const OpContext& ctx, const GateUpArgs& args);

}  // namespace millrace

#endif  // KERNELS_GATE_UP_GATE_UP_IMPL_H_
