// A gRPC server with the settings every Millrace server has.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_GRPC_LISTENER_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_GRPC_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/impl/codegen/service_type.h"
#include "grpcpp/server.h"

namespace millrace {

struct ListenerOptions {
  std::string host;
  int32_t port = 0;         // 0: a free one
  std::string certificate;  // PEM; empty: no TLS
  std::string key;
  std::string client_ca;
  int32_t max_message_bytes = 16 << 20;
};

struct Listener {
  std::unique_ptr<grpc::Server> server;
  int32_t port = 0;
};

// `services` outlive the server. UNAVAILABLE when the port is taken.
absl::StatusOr<Listener> Listen(const ListenerOptions& options,
                                const std::vector<grpc::Service*>& services);

// Whether nobody but this machine reaches a server on `host`.
bool IsLoopback(const std::string& host);

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_GRPC_LISTENER_H_
