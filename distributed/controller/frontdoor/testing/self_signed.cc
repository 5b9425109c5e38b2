#include "distributed/controller/frontdoor/testing/self_signed.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "kernels/core/check.h"

namespace millrace {
namespace {

constexpr long kLifetimeSeconds = 24 * 3600;
constexpr long kSkewSeconds = 3600;  // clocks that disagree

std::string Contents(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

void AddExtension(X509* certificate, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
  MR_CHECK(extension != nullptr);
  MR_CHECK(X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

SelfSigned MakeSelfSigned(const std::string& name) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  MR_CHECK(key != nullptr && certificate != nullptr);
  X509* const x = certificate.get();
  X509_set_version(x, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  X509_gmtime_adj(X509_getm_notBefore(x), -kSkewSeconds);
  X509_gmtime_adj(X509_getm_notAfter(x), kLifetimeSeconds);
  X509_NAME* const subject = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
  X509_set_issuer_name(x, subject);
  X509_set_pubkey(x, key.get());
  AddExtension(x, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(x, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  MR_CHECK(X509_sign(x, key.get(), EVP_sha256()) > 0);

  const std::unique_ptr<BIO, decltype(&BIO_free)> out(BIO_new(BIO_s_mem()), BIO_free);
  SelfSigned made;
  MR_CHECK(PEM_write_bio_X509(out.get(), x) == 1);
  made.certificate = Contents(out.get());
  MR_CHECK(BIO_reset(out.get()) == 1);
  MR_CHECK(PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
           1);
  made.key = Contents(out.get());
  return made;
}

}  // namespace millrace
