#include "engine/weights/sha256.h"

#include <array>

#include "absl/strings/escaping.h"
#include "kernels/core/check.h"

namespace millrace {

// The calls below fail only without memory or with a broken OpenSSL.
Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  MR_CHECK(context_ != nullptr);
  MR_CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(absl::Span<const std::byte> bytes) {
  MR_CHECK_EQ(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()), 1);
}

void Sha256::AddField(std::string_view text) {
  AddField(static_cast<int64_t>(text.size()));
  Add(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

void Sha256::AddField(int64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
  Add(bytes);
}

std::string Sha256::Hex() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  MR_CHECK_EQ(
      EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size),
      1);
  digest.resize(size);
  return absl::BytesToHexString(digest);
}

}  // namespace millrace
