// A communicator whose small sums go over peer memory, where that is measured to be faster.
#ifndef DISTRIBUTED_COMM_PEER_COMMUNICATOR_H_
#define DISTRIBUTED_COMM_PEER_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/comm/connect.h"
#include "distributed/comm/key_value_store.h"
#include "engine/parallel/communicator.h"
#include "kernels/core/device.h"

namespace millrace {

// A sum over the ranks with the residual addition and RMSNorm that follow it, in a captured graph.
struct AllReduceTime {
  int64_t bytes = 0;       // of the message
  double fused_us = 0;     // AllReduceRmsNorm
  double separate_us = 0;  // AllReduceSum, then RmsNorm
};

// Of messages of 8 KiB, 16 KiB, ... up to `peers.max_bytes`, in rows of 4096 bf16. All ranks call
// it and get the same numbers: the means over the ranks.
absl::StatusOr<std::vector<AllReduceTime>> TimeAllReduce(Communicator& comm,
                                                         const AllReducePeers& peers,
                                                         Device& device);

// The largest message up to which all are faster fused; 0 when the smallest is not.
int64_t FusedLimit(const std::vector<AllReduceTime>& times);

struct JoinedGroup {
  std::unique_ptr<Communicator> communicator;
  std::string transport;  // for people: "NCCL 2.27.7, peer memory to 512 KiB"
};

// Gives `group` peers() of the size that pays, which it measures; leaves the group as it is where
// its ranks cannot reach each other's memory. Every rank calls it. `device` outlives the result.
absl::StatusOr<JoinedGroup> AddPeerMemory(const ConnectOptions& options, JoinedGroup group,
                                          KeyValueStore& store, Device& device);

}  // namespace millrace

#endif  // DISTRIBUTED_COMM_PEER_COMMUNICATOR_H_
