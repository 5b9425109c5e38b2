// Everything that can go wrong with a call, and that the server serves on afterwards.
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "distributed/controller/frontdoor/testing/server_fixture.h"
#include "distributed/wire/error_details.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;
using std::chrono::milliseconds;

class FailureTest : public ServerFixture {
 protected:
  pb::GenerateRequest Endless(const std::string& id) {
    pb::GenerateRequest request = TextRequest("0", 400, true);
    request.set_request_id(id);
    return request;
  }
  absl::Status Abort(const std::vector<std::string>& ids) {
    grpc::ClientContext context;
    pb::AbortRequest request;
    for (const std::string& id : ids) request.add_request_ids(id);
    pb::AbortResponse response;
    return FromGrpcStatus(stub_->Abort(&context, request, &response));
  }
};

TEST_F(FailureTest, BadInputIsRefusedAndTheServerServesOn) {
  StartServer();
  const std::vector<std::function<void(pb::GenerateRequest&)>> bad = {
      [](auto& r) { r.mutable_sampling_params()->set_n(4000000000u); },
      [](auto& r) { r.mutable_sampling_params()->set_max_tokens(4000000000u); },
      [](auto& r) { r.mutable_sampling_params()->set_temperature(-1); },
      [](auto& r) { r.mutable_sampling_params()->add_stop(std::string(1 << 20, 's')); },
      [](auto& r) { r.mutable_tokenized()->add_input_ids(4294967295u); },
      [](auto& r) { r.mutable_tokenized()->add_input_ids(kLettersVocab); },
      [](auto& r) { r.set_text(""); },
      [](auto& r) { r.clear_text(); },
      [](auto& r) { r.set_request_id(std::string(1000, 'x')); },
      [](auto& r) { r.mutable_mm_inputs(); },
      [](auto& r) { r.mutable_sampling_params()->set_regex("(a*)*"); },
  };
  for (const auto& change : bad) {
    pb::GenerateRequest request = TextRequest("a", 4, true);
    change(request);
    const Answer answer = Generate(request);
    EXPECT_FALSE(answer.status.ok());
    EXPECT_NE(GetErrorFacts(answer.status).field, "") << answer.status;
    EXPECT_TRUE(answer.choices.empty());
    ExpectServesOn();
  }
}

TEST_F(FailureTest, MessageBeyondTheCap) {
  options_.max_message_bytes = 64 << 10;
  StartServer();
  const Answer answer = Generate(TextRequest(std::string(100 << 10, 'a'), 4, false));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kResourceExhausted) << answer.status;
  ExpectServesOn();
}

TEST_F(FailureTest, MetadataBeyondTheCap) {
  StartServer();
  grpc::ClientContext context;
  context.AddMetadata("x-large", std::string(64 << 10, 'm'));
  EXPECT_FALSE(Generate(TextRequest("w", 4, false), &context).status.ok());
  // That connection may be gone; others are not.
  stub_ = pb::VllmEngine::NewStub(NewChannel());
  ExpectServesOn();
}

TEST_F(FailureTest, NumericFaultEndsOneRequest) {
  StartServer();
  const Answer answer = Generate(TextRequest("!", 4, true));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(GetErrorFacts(answer.status).reason, "NUMERIC_FAULT") << answer.status;
  ExpectServesOn();
}

TEST_F(FailureTest, LiveIdsAreUnique) {
  StartServer();
  control_->step_micros = 1000;
  std::thread first([&] {
    const Answer answer = Generate(Endless("same"));
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.first().end().usage.completion_tokens, 400);
  });
  EXPECT_TRUE(Eventually([&] { return server_->running_calls() == 1; }));
  const Answer second = Generate(Endless("same"));
  EXPECT_EQ(second.status.code(), absl::StatusCode::kAlreadyExists) << second.status;
  first.join();
  // An id may come again once its call is over.
  EXPECT_TRUE(Generate(Endless("same")).status.ok());
}

TEST_F(FailureTest, AbortIsExact) {
  StartServer();
  control_->step_micros = 1000;
  std::map<std::string, Answer> answers = {{"1", {}}, {"12", {}}, {"123", {}}};
  std::vector<std::thread> threads;
  for (auto& [id, answer] : answers) {
    threads.emplace_back([&, id = id] { answer = Generate(Endless(id)); });
  }
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 3; }));
  EXPECT_TRUE(Abort({"1"}).ok());
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(answers["1"].status.ok()) << answers["1"].status;
  EXPECT_EQ(answers["1"].first().end().finish_reason, FinishReason::kAbort);
  EXPECT_LT(answers["1"].first().end().usage.completion_tokens, 400);
  EXPECT_EQ(answers["1"].first().streamed_text(), answers["1"].first().end().text);
  for (const char* id : {"12", "123"}) {
    EXPECT_EQ(answers[id].first().end().usage.completion_tokens, 400);
    EXPECT_EQ(answers[id].first().end().finish_reason, FinishReason::kLength);
  }
  // Ended: nothing to do. Never seen: said so.
  EXPECT_TRUE(Abort({"1"}).ok());
  const absl::Status unknown = Abort({"1", "nobody"});
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetErrorFacts(unknown).reason, "UNKNOWN_REQUEST");
  EXPECT_EQ(Abort({}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
}

TEST_F(FailureTest, CancelFreesPages) {
  StartServer();
  control_->step_micros = 2000;
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    int messages = 0;
    pb::GenerateRequest request = Endless("");
    request.mutable_sampling_params()->set_n(1 + round % 4);
    const Answer answer = Generate(request, &context, [&] {
      if (++messages == 1 + round % 5) context.TryCancel();
    });
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kCancelled) << answer.status;
  }
  EXPECT_TRUE(Eventually([&] { return PagesAreBack() && server_->running_calls() == 0; }));
  ExpectServesOn();
}

TEST_F(FailureTest, DeadlineWhileRunning) {
  StartServer();
  control_->step_micros = 5000;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  const Answer answer = Generate(Endless(""), &context);
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded) << answer.status;
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
}

TEST_F(FailureTest, DeadlineWhileWaiting) {
  options_.scheduler.max_num_seqs = 1;
  StartServer();
  control_->paused = true;
  grpc::ClientContext first_context;
  std::thread first([&] { Generate(Endless("first"), &first_context); });
  EXPECT_TRUE(Eventually([&] { return server_->running_calls() == 1; }));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
  EXPECT_EQ(Generate(Endless("second"), &context).status.code(),
            absl::StatusCode::kDeadlineExceeded);
  first_context.TryCancel();
  control_->paused = false;
  first.join();
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
}

TEST_F(FailureTest, FullQueue) {
  options_.scheduler.max_num_seqs = 1;
  options_.scheduler.max_waiting = 2;
  StartServer();
  control_->step_micros = 10000;
  std::vector<grpc::ClientContext> contexts(3);
  std::vector<std::thread> threads;
  for (grpc::ClientContext& context : contexts) {
    threads.emplace_back([&] { Generate(Endless(""), &context); });
    // One runs before the others come, so that two wait.
    EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 1; }));
  }
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.waiting == 2; }));
  const Answer refused = Generate(Endless("one too many"));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted) << refused.status;
  EXPECT_EQ(GetErrorFacts(refused.status).reason, "QUEUE_FULL");
  EXPECT_GT(GetErrorFacts(refused.status).retry_after, absl::ZeroDuration());
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  control_->step_micros = 0;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
  ExpectServesOn();
}

TEST_F(FailureTest, LostWorkerEndsItsRequestsAndANewGroupServesOn) {
  StartServer();
  control_->step_micros = 1000;
  std::vector<Answer> answers(4);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) threads.emplace_back([&] { answer = Generate(Endless("")); });
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 4; }));
  control_->broken = true;
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable) << answer.status;
    EXPECT_EQ(GetErrorFacts(answer.status).reason, "WORKER_LOST");
    EXPECT_EQ(GetErrorFacts(answer.status).rank, 1);
  }
  const Answer refused = Generate(Endless(""));
  EXPECT_EQ(GetErrorFacts(refused.status).reason, "WORKER_LOST") << refused.status;
  EXPECT_NE(server_->metrics_text().find("worker_lost_total{model_name=\"letters\",rank=\"1\"} 1"),
            std::string::npos);
  control_->broken = false;
  control_->step_micros = 0;
  ASSERT_TRUE(SetExecutor().ok());
  ExpectServesOn();
}

TEST_F(FailureTest, SlowReaderIsGivenUpAndStallsNobody) {
  options_.limits.slow_reader_timeout = milliseconds(400);
  StartServer();
  // A client with a small window that does not read what is far more than it.
  pb::GenerateRequest request = TextRequest("0", 480, true);
  request.mutable_sampling_params()->set_logprobs(20);
  request.mutable_sampling_params()->set_n(16);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 10);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  const auto slow_stub = pb::VllmEngine::NewStub(NewChannel(arguments));
  grpc::ClientContext context;
  const auto reader = slow_stub->Generate(&context, request);
  const auto given_up = [&] {
    return server_->metrics_text().find("stream_stalled_aborts_total{model_name=\"letters\"} 1") !=
           std::string::npos;
  };
  // On a busy machine it may be given up before this thread sees it run.
  EXPECT_TRUE(Eventually([&] { return server_->running_calls() == 1 || given_up(); }));
  for (int i = 0; i < 5; ++i) ExpectServesOn();
  EXPECT_TRUE(Eventually(given_up));
  EXPECT_TRUE(Eventually([&] { return server_->running_calls() == 0; }));
  EXPECT_TRUE(Eventually([&] { return PagesAreBack(); }));
  pb::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  // Its own status when the client came back in time, else the call was cut off.
  const absl::Status status = FromGrpcStatus(reader->Finish());
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(status.code() == absl::StatusCode::kResourceExhausted ||
              status.code() == absl::StatusCode::kCancelled)
      << status;
}

TEST_F(FailureTest, LoadingIsSaid) {
  StartServer(/*with_executor=*/false);
  const Answer answer = Generate(Endless(""));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetErrorFacts(answer.status).reason, "LOADING");
  ASSERT_TRUE(SetExecutor().ok());
  ExpectServesOn();
}

TEST_F(FailureTest, DrainLetsRunningRequestsFinish) {
  StartServer();
  control_->step_micros = 500;
  std::vector<Answer> answers(4);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) threads.emplace_back([&] { answer = Generate(Endless("")); });
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 4; }));
  std::thread drain([&] { EXPECT_TRUE(server_->Drain(absl::Seconds(30))); });
  ASSERT_TRUE(
      Eventually([&] { return GetErrorFacts(Generate(Endless("")).status).reason == "DRAINING"; }));
  drain.join();
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_EQ(answer.first().end().usage.completion_tokens, 400);
  }
}

TEST_F(FailureTest, DrainEndsWhatTakesTooLong) {
  StartServer();
  control_->step_micros = 20000;
  Answer answer;
  std::thread thread([&] { answer = Generate(Endless("")); });
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 1; }));
  EXPECT_FALSE(server_->Drain(absl::Milliseconds(50)));
  thread.join();
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable) << answer.status;
  EXPECT_EQ(GetErrorFacts(answer.status).reason, "DRAINING");
}

TEST_F(FailureTest, ServerEndsUnderLoad) {
  StartServer();
  control_->step_micros = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_FALSE(Generate(Endless("")).status.ok()); });
  }
  EXPECT_TRUE(Eventually([&] { return server_->stats().scheduler.running == 4; }));
  server_.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST(ServerOptions, BeyondLoopbackNeedsALeave) {
  const std::string folder = WriteLettersFolder(::testing::TempDir());
  ServerOptions options;
  options.port = 0;
  options.host = "0.0.0.0";
  options.scheduler.max_model_len = 64;
  auto model = LoadServedModel(folder, folder);
  ASSERT_TRUE(model.ok()) << model.status();
  model->max_model_len = 64;
  const auto refused = Server::Start(options, *model);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(std::string(refused.status().message()).find("--allow-insecure"), std::string::npos);
  options.allow_insecure = true;
  EXPECT_TRUE(Server::Start(options, *model).ok());
  options.host = "127.0.0.1";
  const auto first = Server::Start(options, *model);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto second = Server::Start(options, *model);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
}

}  // namespace
}  // namespace millrace
