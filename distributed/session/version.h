// What controller and worker must have in common.
#ifndef DISTRIBUTED_SESSION_VERSION_H_
#define DISTRIBUTED_SESSION_VERSION_H_

#include <string>
#include <string_view>

namespace millrace {

inline constexpr std::string_view kBuildVersion = "0.1.0";

// Changes with every change of worker.proto: 16 hex digits of its descriptor's SHA-256.
std::string ProtocolRevision();

}  // namespace millrace

#endif  // DISTRIBUTED_SESSION_VERSION_H_
