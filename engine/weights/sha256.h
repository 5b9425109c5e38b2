// SHA-256 of bytes given in parts.
#ifndef ENGINE_WEIGHTS_SHA256_H_
#define ENGINE_WEIGHTS_SHA256_H_

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace millrace {

// One thread.
class Sha256 final {
 public:
  Sha256();
  ~Sha256();

  void Add(absl::Span<const std::byte> bytes);
  // Adds the length first, so that ("ab", "c") and ("a", "bc") differ.
  void AddField(std::string_view text);
  void AddField(int64_t value);

  // 64 hex digits. Ends the sum: nothing may be added after.
  std::string Hex();

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_SHA256_H_
