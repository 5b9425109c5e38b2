#include "distributed/controller/frontdoor/grpc_listener.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"

namespace millrace {
namespace {

constexpr int kKeepaliveMs = 30000;
constexpr int kKeepaliveTimeoutMs = 10000;
constexpr int kMinClientPingMs = 10000;
constexpr int kMaxMetadataBytes = 16 << 10;

std::shared_ptr<grpc::ServerCredentials> Credentials(const ListenerOptions& options) {
  if (options.certificate.empty()) return grpc::InsecureServerCredentials();
  const bool mutual = !options.client_ca.empty();
  grpc::SslServerCredentialsOptions ssl(
      mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  ssl.pem_key_cert_pairs.push_back({options.key, options.certificate});
  ssl.pem_root_certs = options.client_ca;
  return grpc::SslServerCredentials(ssl);
}

void SetArguments(const ListenerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  // Clients behind NATs ping; dead ones are noticed and free their pages.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinClientPingMs);
  // Two servers on one port would share the requests between them unnoticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

absl::StatusOr<Listener> Listen(const ListenerOptions& options,
                                const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  const bool v6 = absl::StrContains(options.host, ":") && !absl::StartsWith(options.host, "[");
  const std::string address =
      absl::StrCat(v6 ? "[" : "", options.host, v6 ? "]" : "", ":", options.port);
  int bound = 0;
  builder.AddListeningPort(address, Credentials(options), &bound);
  for (grpc::Service* service : services) builder.RegisterService(service);
  SetArguments(options, builder);
  Listener listener;
  listener.server = builder.BuildAndStart();
  listener.port = bound;
  if (listener.server == nullptr || bound == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address,
                     ": the port is taken, the address is not of this machine, or the certificate "
                     "is wrong; choose another --port or --host"));
  }
  return listener;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || absl::StartsWith(host, "127.");
}

}  // namespace millrace
