// What every Communicator must do. One suite, without a test framework, so that it also runs in the
// ranks that are processes.
#ifndef DISTRIBUTED_COMM_CONFORMANCE_H_
#define DISTRIBUTED_COMM_CONFORMANCE_H_

#include "absl/status/status.h"
#include "engine/parallel/communicator.h"

namespace millrace {

// Every rank calls it, on host memory. Internal saying what was wrong.
absl::Status CheckCollectives(Communicator& communicator);

// Every rank calls it, once all are connected; rank 0 does not take part in the last collective,
// but aborts. The other ranks must get UNAVAILABLE there, and all of them in any later one.
// Internal otherwise.
absl::Status CheckAbort(Communicator& communicator);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_CONFORMANCE_H_
