#include "tools/serve/tls_files.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/config/read_file.h"
#include "kernels/core/status.h"
#include "tools/common/flags.h"
#include "tools/serve/advice.h"

namespace millrace {
namespace {

constexpr int64_t kMaxPemBytes = 4 << 20;  // bundles of authorities are long

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;

Memory MemoryOf(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

Certificate ParseCertificate(const std::string& pem) {
  return {PEM_read_bio_X509(MemoryOf(pem).get(), nullptr, nullptr, nullptr), X509_free};
}

Key ParseKey(const std::string& pem) {
  // An empty pass phrase instead of a question on the terminal.
  char none[] = "";
  return {PEM_read_bio_PrivateKey(MemoryOf(pem).get(), nullptr, nullptr, none), EVP_PKEY_free};
}

absl::StatusOr<std::string> ReadPem(const char* flag, const std::string& path) {
  if (path.empty()) return std::string();
  absl::StatusOr<std::string> text = ReadFile(PathFromUser(path), kMaxPemBytes);
  if (text.ok()) return text;
  return absl::Status(text.status().code(),
                      absl::StrCat(flag, ": ", std::string(text.status().message())));
}

absl::Status NotPem(const char* flag, const std::string& path, const char* what) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " holds no ", what, " in PEM"));
}

absl::StatusOr<TlsFiles> ReadAll(const TlsPaths& paths) {
  if (paths.certificate.empty() != paths.key.empty()) {
    return absl::InvalidArgumentError("TLS: give both --tls-cert and --tls-key");
  }
  TlsFiles files;
  ASSIGN_OR_RETURN(files.certificate, ReadPem("--tls-cert", paths.certificate));
  ASSIGN_OR_RETURN(files.key, ReadPem("--tls-key", paths.key));
  ASSIGN_OR_RETURN(files.client_ca, ReadPem("--tls-client-ca", paths.client_ca));
  if (!paths.client_ca.empty() && ParseCertificate(files.client_ca) == nullptr) {
    return NotPem("--tls-client-ca", paths.client_ca, "certificate");
  }
  if (paths.certificate.empty()) return files;
  const Certificate certificate = ParseCertificate(files.certificate);
  if (certificate == nullptr) return NotPem("--tls-cert", paths.certificate, "certificate");
  const Key key = ParseKey(files.key);
  if (key == nullptr) {
    return NotPem("--tls-key", paths.key, "private key without a pass phrase");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("--tls-key: ", paths.key,
                                                   " is not the key of the certificate in ",
                                                   paths.certificate, " (--tls-cert)"));
  }
  return files;
}

}  // namespace

absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths) {
  return During(StartStep::kTls, ReadAll(paths));
}

}  // namespace millrace
