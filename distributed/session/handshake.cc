#include "distributed/session/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace millrace {

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return absl::InternalError("the system's random generator has failed");
  }
  return bytes;
}

absl::StatusOr<std::string> MakeProof(const std::string& secret, SessionRole role,
                                      const std::string& worker_nonce,
                                      const std::string& controller_nonce) {
  // Both labels are equally long, and so are the nonces: no two inputs give the same text.
  const std::string text = std::string("millrace session 1, ") +
                           (role == SessionRole::kWorker ? "worker    " : "controller") +
                           worker_nonce + controller_nonce;
  std::string proof(kProofBytes, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size) == nullptr ||
      size != kProofBytes) {
    return absl::InternalError("HMAC-SHA256 has failed");
  }
  return proof;
}

bool SameProof(const std::string& expected, const std::string& got) {
  return got.size() == expected.size() && got.size() == kProofBytes &&
         CRYPTO_memcmp(expected.data(), got.data(), got.size()) == 0;
}

}  // namespace millrace
