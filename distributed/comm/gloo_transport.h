// Slots in each rank's own memory, filled over TCP by gloo: for ranks on several hosts. gloo's
// connections are neither encrypted nor authenticated; the network between the ranks must be
// trusted.
#ifndef DISTRIBUTED_COMM_GLOO_TRANSPORT_H_
#define DISTRIBUTED_COMM_GLOO_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/comm/key_value_store.h"
#include "distributed/comm/slot_transport.h"

namespace millrace {

struct GlooOptions {
  int32_t rank = 0;
  int32_t size = 1;
  std::string address = "127.0.0.1";  // of this host, seen by the other ranks; bound to
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Minutes(5);  // of one Exchange
};

// Every rank calls it. REQUIRES: SIGPIPE is ignored, as gRPC sees to where it is used (gloo writes
// to sockets that the peer may have closed). Unavailable or DeadlineExceeded when the ranks do not
// get together.
absl::StatusOr<std::unique_ptr<SlotTransport>> ConnectGloo(const GlooOptions& options,
                                                           KeyValueStore& store);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_GLOO_TRANSPORT_H_
