#include "distributed/comm/connect.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "distributed/comm/gloo_transport.h"
#include "distributed/comm/shm_transport.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<SlotCommunicator>> ConnectGroup(const ConnectOptions& options,
                                                               KeyValueStore& store) {
  std::unique_ptr<SlotTransport> transport;
  if (options.transport == CollectiveTransport::kAuto) {
    ASSIGN_OR_RETURN(
        std::unique_ptr<ShmSegment> segment,
        ShmSegment::Connect(options.rank, options.size, store, options.connect_timeout));
    if (segment != nullptr) {
      transport = std::make_unique<ShmTransport>(std::move(segment), options.rank, options.size,
                                                 options.timeout);
    }
  }
  if (transport == nullptr) {
    ASSIGN_OR_RETURN(transport, ConnectGloo({.rank = options.rank,
                                             .size = options.size,
                                             .address = options.address,
                                             .connect_timeout = options.connect_timeout,
                                             .timeout = options.timeout},
                                            store));
  }
  return std::make_unique<SlotCommunicator>(std::move(transport));
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("address ", host_port, ": want host:port"));
  }
  std::string host = host_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  struct addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  struct addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), host_port.c_str() + colon + 1, &hints, &found);
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat(host_port, ": ", gai_strerror(failed)));
  }
  // Connecting a datagram socket sends nothing; it only picks the route.
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  char name[NI_MAXHOST] = {};
  const bool ok = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                  getsockname(fd, reinterpret_cast<struct sockaddr*>(&local), &size) == 0 &&
                  getnameinfo(reinterpret_cast<struct sockaddr*>(&local), size, name, sizeof(name),
                              nullptr, 0, NI_NUMERICHOST) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  if (!ok) {
    return absl::UnavailableError(
        absl::StrCat("no route to ", host_port, ": ", std::strerror(error)));
  }
  return std::string(name);
}

}  // namespace millrace
