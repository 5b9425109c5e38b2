#include "tools/serve/tls_files.h"

#include <fstream>
#include <string>

#include "distributed/controller/frontdoor/testing/self_signed.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

class TlsFilesTest : public ::testing::Test {
 protected:
  const SelfSigned made_ = MakeSelfSigned("a");
  const std::string certificate_ = Write("cert.pem", made_.certificate);
  const std::string key_ = Write("key.pem", made_.key);
  const std::string junk_ = Write("junk.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
  const std::string empty_ = Write("empty.pem", "");
};

TEST_F(TlsFilesTest, ReadsWhatGoesTogether) {
  const auto none = ReadTlsFiles({});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->certificate + none->key + none->client_ca, "");
  const auto all = ReadTlsFiles({certificate_, key_, certificate_});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->certificate, made_.certificate);
  EXPECT_EQ(all->key, made_.key);
  EXPECT_EQ(all->client_ca, made_.certificate);
}

TEST_F(TlsFilesTest, ErrorsNameFlagAndFile) {
  const std::string other_key = Write("other_key.pem", MakeSelfSigned("b").key);
  const std::string missing = ::testing::TempDir() + "/missing.pem";
  const struct {
    TlsPaths paths;
    std::string error;
  } cases[] = {
      {{certificate_, "", ""}, "INVALID_ARGUMENT: TLS: give both --tls-cert and --tls-key"},
      {{"", key_, ""}, "INVALID_ARGUMENT: TLS: give both --tls-cert and --tls-key"},
      {{missing, key_, ""}, "NOT_FOUND: --tls-cert: " + missing + ": no such file"},
      {{certificate_, missing, ""}, "NOT_FOUND: --tls-key: " + missing + ": no such file"},
      {{certificate_, key_, missing}, "NOT_FOUND: --tls-client-ca: " + missing + ": no such file"},
      {{empty_, key_, ""},
       "INVALID_ARGUMENT: --tls-cert: " + empty_ + " holds no certificate in PEM"},
      {{::testing::TempDir(), key_, ""},
       "INVALID_ARGUMENT: --tls-cert: " + ::testing::TempDir() + ": not a regular file"},
      {{junk_, key_, ""},
       "INVALID_ARGUMENT: --tls-cert: " + junk_ + " holds no certificate in PEM"},
      {{key_, key_, ""}, "INVALID_ARGUMENT: --tls-cert: " + key_ + " holds no certificate in PEM"},
      {{certificate_, certificate_, ""},
       "INVALID_ARGUMENT: --tls-key: " + certificate_ +
           " holds no private key without a pass phrase in PEM"},
      {{certificate_, other_key, ""},
       "INVALID_ARGUMENT: --tls-key: " + other_key + " is not the key of the certificate in " +
           certificate_ + " (--tls-cert)"},
      {{certificate_, key_, empty_},
       "INVALID_ARGUMENT: --tls-client-ca: " + empty_ + " holds no certificate in PEM"},
      {{certificate_, key_, key_},
       "INVALID_ARGUMENT: --tls-client-ca: " + key_ + " holds no certificate in PEM"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ReadTlsFiles(c.paths).status().ToString().substr(0, c.error.size()), c.error);
  }
}

}  // namespace
}  // namespace millrace
