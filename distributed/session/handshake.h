// Mutual proof that both ends know the cluster secret, before either parses what the other says.
// Each side's nonce is fresh, so a proof seen once proves nothing the next time; the proofs of the
// two roles differ, so a proof cannot be thrown back at its maker.
#ifndef DISTRIBUTED_SESSION_HANDSHAKE_H_
#define DISTRIBUTED_SESSION_HANDSHAKE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace millrace {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

enum class SessionRole { kWorker, kController };

// From the system's generator. Internal when it has failed.
absl::StatusOr<std::string> RandomBytes(size_t count);

// HMAC-SHA256(secret, role | worker_nonce | controller_nonce). Internal when OpenSSL fails.
absl::StatusOr<std::string> MakeProof(const std::string& secret, SessionRole role,
                                      const std::string& worker_nonce,
                                      const std::string& controller_nonce);

// Constant time in the content. False for a proof of the wrong size.
bool SameProof(const std::string& expected, const std::string& got);

}  // namespace millrace

#endif  // DISTRIBUTED_SESSION_HANDSHAKE_H_
