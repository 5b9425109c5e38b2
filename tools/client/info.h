// What a server says about itself.
#ifndef TOOLS_CLIENT_INFO_H_
#define TOOLS_CLIENT_INFO_H_

#include <memory>
#include <ostream>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "proto/vllm_engine.grpc.pb.h"

namespace millrace {

absl::StatusOr<vllm::grpc::engine::GetModelInfoResponse> AskModelInfo(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout);

// Model, server and load, a fact a line.
absl::Status ShowInfo(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                      std::ostream& out);

// "serving" or an UNAVAILABLE error, by grpc.health.v1 and the engine's own message.
absl::Status ShowHealth(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout,
                        std::ostream& out);

}  // namespace millrace

#endif  // TOOLS_CLIENT_INFO_H_
