// The public port with TLS: who gets in, and who does not.
#include <memory>
#include <string>

#include "distributed/controller/frontdoor/testing/self_signed.h"
#include "distributed/controller/frontdoor/testing/server_fixture.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

class TlsTest : public ServerFixture {
 protected:
  const SelfSigned own_ = MakeSelfSigned("the server");
  const SelfSigned other_ = MakeSelfSigned("another");

  void UseTls(const std::string& client_ca = "") {
    options_.tls = {.certificate = own_.certificate, .key = own_.key, .client_ca = client_ca};
  }

  // What a generation through such a channel comes to.
  Answer Ask(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = vllm::grpc::engine::VllmEngine::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(server_->port()), credentials, arguments));
    return Generate(TextRequest("w", 16, true));
  }

  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const SelfSigned& server) {
    return grpc::SslCredentials({.pem_root_certs = server.certificate});
  }
  static std::shared_ptr<grpc::ChannelCredentials> Showing(const SelfSigned& server,
                                                           const SelfSigned& client) {
    return grpc::SslCredentials({.pem_root_certs = server.certificate,
                                 .pem_private_key = client.key,
                                 .pem_cert_chain = client.certificate});
  }
};

TEST_F(TlsTest, OnlyAClientThatTrustsTheCertificateIsServed) {
  UseTls();
  StartServer();
  EXPECT_EQ(Ask(grpc::InsecureChannelCredentials()).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(Trusting(other_)).status.code(), absl::StatusCode::kUnavailable);
  const Answer answer = Ask(Trusting(own_));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.first().streamed_text(), "xyz.");
}

TEST_F(TlsTest, OnlyAClientWithACertificateIsServedWhereOneIsWanted) {
  const SelfSigned client = MakeSelfSigned("a client");
  UseTls(client.certificate);
  StartServer();
  EXPECT_EQ(Ask(Trusting(own_)).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ask(Showing(own_, other_)).status.code(), absl::StatusCode::kUnavailable);
  const Answer answer = Ask(Showing(own_, client));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.first().streamed_text(), "xyz.");
}

TEST_F(TlsTest, AServerWithoutTlsDoesNotAnswerAClientThatWantsIt) {
  StartServer();
  EXPECT_EQ(Ask(Trusting(own_)).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Ask(grpc::InsecureChannelCredentials()).status.ok());
}

TEST_F(TlsTest, HalfASetOfFilesIsRefused) {
  const auto start = [&](const TlsFiles& tls) {
    options_.tls = tls;
    return Server::Start(options_, {}).status().ToString();
  };
  EXPECT_EQ(start({.certificate = own_.certificate}),
            "INVALID_ARGUMENT: TLS: give both --tls-cert and --tls-key");
  EXPECT_EQ(start({.key = own_.key}), "INVALID_ARGUMENT: TLS: give both --tls-cert and --tls-key");
  EXPECT_EQ(start({.client_ca = own_.certificate}),
            "INVALID_ARGUMENT: TLS: --tls-client-ca needs --tls-cert and --tls-key");
  EXPECT_NE(start({.certificate = own_.certificate, .key = other_.key}).find("certificate"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
