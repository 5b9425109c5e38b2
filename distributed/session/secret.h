// The cluster secret: a file that controller and workers can read and nobody else.
#ifndef DISTRIBUTED_SESSION_SECRET_H_
#define DISTRIBUTED_SESSION_SECRET_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 4096;

// InvalidArgument for a secret too short or too long to be one. Never repeats the secret.
absl::Status CheckSecret(const std::string& secret);

// The file's content without trailing line ends. NotFound; PermissionDenied when it cannot be read
// or when group or others can read it; InvalidArgument when CheckSecret refuses it.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);

// ReadSecretFile, after making the file (mode 0600, 64 random hex digits) if there is none. Several
// processes may do so at the same time: all get the same secret. The folder must exist.
absl::StatusOr<std::string> ReadOrMakeSecretFile(const std::string& path);

}  // namespace millrace

#endif  // DISTRIBUTED_SESSION_SECRET_H_
