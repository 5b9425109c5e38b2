// A server over the letters model on a free loopback port, and a client for it.
#ifndef DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SERVER_FIXTURE_H_
#define DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SERVER_FIXTURE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/controller/frontdoor/server.h"
#include "distributed/controller/frontdoor/testing/letters.h"
#include "distributed/wire/response.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "gtest/gtest.h"
#include "proto/vllm_engine.grpc.pb.h"

namespace millrace {

// Everything one Generate call answered, by choice.
struct Answer {
  struct Choice {
    std::vector<ResponseChunk> chunks;
    std::vector<ResponseComplete> completes;
    std::string streamed_text() const;
    std::vector<int32_t> streamed_ids() const;
    const ResponseComplete& end() const { return completes.at(0); }
  };
  absl::Status status;
  std::map<int32_t, Choice> choices;
  const Choice& first() const { return choices.at(0); }
};

class ServerFixture : public ::testing::Test {
 protected:
  static constexpr int32_t kPages = 64;
  static constexpr int32_t kPageTokens = 16;

  // Tests may change this before StartServer().
  ServerOptions options_ = DefaultOptions();
  std::shared_ptr<LettersControl> control_ = std::make_shared<LettersControl>();
  std::unique_ptr<Server> server_;
  std::unique_ptr<vllm::grpc::engine::VllmEngine::Stub> stub_;
  std::string folder_;

  static ServerOptions DefaultOptions();
  // Starts and, unless told otherwise, makes it ready.
  void StartServer(bool with_executor = true);
  absl::Status SetExecutor(int32_t num_pages = kPages, int32_t max_model_len = 0);
  std::shared_ptr<grpc::Channel> NewChannel(grpc::ChannelArguments arguments = {}) const;
  void TearDown() override;

  static vllm::grpc::engine::GenerateRequest TextRequest(const std::string& text,
                                                         uint32_t max_tokens, bool stream);
  // `between` runs after each message.
  Answer Generate(const vllm::grpc::engine::GenerateRequest& request,
                  grpc::ClientContext* context = nullptr,
                  const std::function<void()>& between = {});

  // Polls, up to ten seconds.
  static bool Eventually(const std::function<bool()>& condition);
  // No page is held by a live sequence, and none is lost.
  bool PagesAreBack() const;
  // The server still answers as it should.
  void ExpectServesOn();
};

}  // namespace millrace

#endif  // DISTRIBUTED_CONTROLLER_FRONTDOOR_TESTING_SERVER_FIXTURE_H_
