// Joins the ranks of a group on the CPU.
#ifndef DISTRIBUTED_COMM_CONNECT_H_
#define DISTRIBUTED_COMM_CONNECT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/comm/key_value_store.h"
#include "distributed/comm/slot_communicator.h"

namespace millrace {

enum class CollectiveTransport {
  kAuto,  // shared memory when all ranks are on one host, else gloo
  kGloo,
};

struct ConnectOptions {
  int32_t rank = 0;
  int32_t size = 1;
  CollectiveTransport transport = CollectiveTransport::kAuto;  // the same on every rank
  std::string address = "127.0.0.1";  // of this host, seen by the other ranks; gloo binds to it
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Minutes(5);  // of one collective's wait for another rank
};

// Every rank calls it; it returns once all have. REQUIRES: SIGPIPE is ignored. Unavailable,
// DeadlineExceeded.
absl::StatusOr<std::unique_ptr<SlotCommunicator>> ConnectGroup(const ConnectOptions& options,
                                                               KeyValueStore& store);

// The address from which this machine reaches host:port, where its peers may reach it. Unavailable
// when there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host_port);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_CONNECT_H_
