#include "distributed/controller/frontdoor/testing/server_fixture.h"

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "distributed/wire/error_details.h"
#include "distributed/wire/response_codec.h"
#include "grpcpp/create_channel.h"

namespace millrace {

namespace pb = ::vllm::grpc::engine;

std::string Answer::Choice::streamed_text() const {
  std::string text;
  for (const ResponseChunk& chunk : chunks) text += chunk.text_delta;
  return text;
}

std::vector<int32_t> Answer::Choice::streamed_ids() const {
  std::vector<int32_t> ids;
  for (const ResponseChunk& chunk : chunks) {
    ids.insert(ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
  }
  return ids;
}

ServerOptions ServerFixture::DefaultOptions() {
  ServerOptions options;
  options.port = 0;
  options.reflection = false;
  options.scheduler.page_tokens = kPageTokens;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.max_num_batched_tokens = 64;
  options.scheduler.max_model_len = 512;
  options.scheduler.max_waiting = 64;
  return options;
}

void ServerFixture::StartServer(bool with_executor) {
  folder_ = WriteLettersFolder(::testing::TempDir());
  absl::StatusOr<ServedModel> model = LoadServedModel(folder_, folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  model->name = "letters";
  model->max_model_len = options_.scheduler.max_model_len;
  model->block_size = kPageTokens;
  model->max_num_seqs = options_.scheduler.max_num_seqs;
  model->data_parallel_size = options_.scheduler.data_parallel_size;
  auto server = Server::Start(options_, *std::move(model));
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  stub_ = pb::VllmEngine::NewStub(NewChannel());
  if (with_executor) {
    const absl::Status status = SetExecutor();
    ASSERT_TRUE(status.ok()) << status;
  }
}

absl::Status ServerFixture::SetExecutor(int32_t num_pages, int32_t max_model_len) {
  return server_->SetExecutor(
      std::make_unique<LettersExecutor>(options_.scheduler.max_num_seqs, control_), num_pages,
      max_model_len);
}

std::shared_ptr<grpc::Channel> ServerFixture::NewChannel(grpc::ChannelArguments arguments) const {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", server_->port()),
                                   grpc::InsecureChannelCredentials(), arguments);
}

void ServerFixture::TearDown() {
  control_->paused = false;
  stub_.reset();
  server_.reset();
}

pb::GenerateRequest ServerFixture::TextRequest(const std::string& text, uint32_t max_tokens,
                                               bool stream) {
  pb::GenerateRequest request;
  request.set_text(text);
  request.set_stream(stream);
  request.mutable_sampling_params()->set_max_tokens(max_tokens);
  request.mutable_sampling_params()->set_skip_special_tokens(true);
  return request;
}

Answer ServerFixture::Generate(const pb::GenerateRequest& request, grpc::ClientContext* context,
                               const std::function<void()>& between) {
  grpc::ClientContext own;
  Answer answer;
  const auto reader = stub_->Generate(context == nullptr ? &own : context, request);
  pb::GenerateResponse message;
  while (reader->Read(&message)) {
    auto news = ResponseFromProto(message);
    EXPECT_TRUE(news.ok()) << news.status();
    if (auto* chunk = std::get_if<ResponseChunk>(&*news)) {
      answer.choices[chunk->index].chunks.push_back(std::move(*chunk));
    } else {
      auto& complete = std::get<ResponseComplete>(*news);
      answer.choices[complete.index].completes.push_back(std::move(complete));
    }
    if (between) between();
  }
  answer.status = FromGrpcStatus(reader->Finish());
  return answer;
}

bool ServerFixture::Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

bool ServerFixture::PagesAreBack() const {
  const SchedulerStats s = server_->stats().scheduler;
  return s.running == 0 && s.waiting == 0 && s.pages_used == 0 &&
         s.pages_free + s.pages_cached == s.pages_total;
}

void ServerFixture::ExpectServesOn() {
  const Answer answer = Generate(TextRequest("w", 16, false));
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.first().end().text, "xyz.");
}

}  // namespace millrace
