// Whether a worker fits the group that the controller wants to make.
#ifndef DISTRIBUTED_CONTROLLER_CLUSTER_HELLO_CHECK_H_
#define DISTRIBUTED_CONTROLLER_CLUSTER_HELLO_CHECK_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace millrace {

// "" and 0 stand for "not compared".
struct HelloRules {
  std::string build_version;
  std::string protocol_revision;
  std::string model_fingerprint;
  std::string device_kind;  // of the workers that are there
  int32_t tensor_parallel_size = 0;
};

// FailedPrecondition with every difference and both values, or InvalidArgument for texts that no
// worker of ours sends. A worker that did not say what it wants takes what it is given.
absl::Status CheckHello(const worker::Hello& hello, const HelloRules& rules);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_CLUSTER_HELLO_CHECK_H_
