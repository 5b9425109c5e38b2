// What every Communicator must do. One suite, without a test framework, so that it also runs in the
// ranks that are processes.
#ifndef DISTRIBUTED_COMM_CONFORMANCE_H_
#define DISTRIBUTED_COMM_CONFORMANCE_H_

#include "absl/status/status.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/device.h"

namespace millrace {

// What the suite runs on.
struct ConformanceBed {
  Device* device = nullptr;  // whose memory the collectives take; null: the host's
  Stream stream;
  // Sums are taken in rank order and rounded once. Else they are only close to that, and the same
  // on every rank.
  bool sums_in_rank_order = true;
};

// Every rank calls it. Internal saying what was wrong.
absl::Status CheckCollectives(Communicator& communicator, const ConformanceBed& bed = {});

// Every rank calls it, on host memory, once all are connected; rank 0 does not take part in the
// last collective, but aborts. The other ranks must get UNAVAILABLE there, and all of them in any
// later one. Internal otherwise.
absl::Status CheckAbort(Communicator& communicator);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_CONFORMANCE_H_
