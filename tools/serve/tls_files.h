// The certificates and keys that flags name.
#ifndef TOOLS_SERVE_TLS_FILES_H_
#define TOOLS_SERVE_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "distributed/controller/frontdoor/server.h"

namespace millrace {

// Paths as the user gave them; empty: not given.
struct TlsPaths {
  std::string certificate;  // --tls-cert
  std::string key;          // --tls-key
  std::string client_ca;    // --tls-client-ca
};

// Reads the files and sees that they hold what they should and go together. Errors name flag and
// file.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths);

}  // namespace millrace

#endif  // TOOLS_SERVE_TLS_FILES_H_
