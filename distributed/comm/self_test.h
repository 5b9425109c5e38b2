// Sums, gathers, exchanges and passes on known numbers, so that a group that does not work is found
// before gigabytes are loaded.
#ifndef DISTRIBUTED_COMM_SELF_TEST_H_
#define DISTRIBUTED_COMM_SELF_TEST_H_

#include "absl/status/status.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/device.h"

namespace millrace {

// Every rank calls it. Internal naming operation, element, what came and what was wanted; or the
// communicator's own error.
absl::Status CollectiveSelfTest(Communicator& communicator, Device& device);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_SELF_TEST_H_
