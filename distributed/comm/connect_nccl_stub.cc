#include "distributed/comm/connect_nccl.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const ConnectOptions&, KeyValueStore&,
                                                          Device&) {
  return absl::UnimplementedError(
      "this build has no NCCL, which ranks on GPUs need: build where the CUDA toolkit has nccl.h "
      "and libnccl.so");
}

std::string NcclVersion() { return ""; }

}  // namespace millrace
