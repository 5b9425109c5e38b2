#include "engine/runtime/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>

#include "absl/time/clock.h"
#include "engine/testing/fake_executor.h"

namespace millrace {
namespace {

constexpr FakeModelOptions kModel = {.num_pages = 64, .page_tokens = 4};

EngineOptions Options() {
  EngineOptions options;
  options.scheduler = {.num_pages = 64,
                       .page_tokens = 4,
                       .max_num_seqs = 8,
                       .max_num_batched_tokens = 64,
                       .max_model_len = 128,
                       .max_waiting = 4};
  return options;
}

class Collector final : public TokenSink {
 public:
  void OnToken(const TokenEvent& event) override {
    std::lock_guard lock(mu_);
    tokens_.push_back(event.token);
  }
  void OnFinish(const FinishEvent& event) override { finished_.set_value(event); }

  FinishEvent Wait() {
    auto future = finished_.get_future();
    EXPECT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    return future.get();
  }
  std::vector<int32_t> tokens() {
    std::lock_guard lock(mu_);
    return tokens_;
  }

 private:
  std::mutex mu_;
  std::vector<int32_t> tokens_;
  std::promise<FinishEvent> finished_;
};

Request MakeRequest(Engine& engine, int32_t max_tokens) {
  Request request{.id = engine.NewId(), .prompt = {1, 2, 3, 4, 5}};
  request.sampling.max_tokens = max_tokens;
  return request;
}

std::unique_ptr<Engine> Started() {
  auto engine = *Engine::Create(Options());
  EXPECT_TRUE(engine->SetExecutor(std::make_unique<FakeExecutor>(kModel), 64).ok());
  return engine;
}

// Blocks in Collect until told otherwise.
class Gate final : public StepExecutor {
 public:
  explicit Gate(std::shared_future<absl::Status> open) : open_(std::move(open)) {}
  absl::Status Launch(const StepPlan&) override { return absl::OkStatus(); }
  absl::StatusOr<StepResult> Collect() override { return open_.get(); }

 private:
  std::shared_future<absl::Status> open_;
};

TEST(Engine, GeneratesWhatTheModelSays) {
  auto engine = Started();
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 20), sink).ok());
  EXPECT_EQ(sink->Wait().reason, FinishReason::kLength);
  std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  for (int i = 0; i < 20; ++i) ids.push_back(FakeNextToken(ids, kModel.vocab));
  EXPECT_EQ(sink->tokens(), std::vector<int32_t>(ids.begin() + 5, ids.end()));
}

TEST(Engine, AnswersUnavailableWithoutAnExecutor) {
  auto engine = *Engine::Create(Options());
  const absl::Status status =
      engine->Submit(MakeRequest(*engine, 1), std::make_shared<Collector>());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST(Engine, RefusedByTheSchedulerArrivesAsAnErrorAndServingGoesOn) {
  auto engine = Started();
  auto bad = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 1000), bad).ok());
  EXPECT_EQ(bad->Wait().status.code(), absl::StatusCode::kInvalidArgument);
  auto good = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 2), good).ok());
  EXPECT_TRUE(good->Wait().status.ok());
}

TEST(Engine, LostExecutorEndsLiveSequencesAndANewOneServes) {
  std::promise<absl::Status> lost;
  auto options = Options();
  options.on_executor_lost = [&](const absl::Status& s) { lost.set_value(s); };
  auto engine = *Engine::Create(std::move(options));
  std::promise<absl::Status> open;
  ASSERT_TRUE(engine->SetExecutor(std::make_unique<Gate>(open.get_future().share()), 64).ok());
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 5), sink).ok());
  open.set_value(absl::UnavailableError("WORKER_LOST: rank 1"));
  const FinishEvent end = sink->Wait();
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status, absl::UnavailableError("WORKER_LOST: rank 1"));
  EXPECT_EQ(lost.get_future().get(), end.status);
  EXPECT_EQ(engine->Submit(MakeRequest(*engine, 1), std::make_shared<Collector>()), end.status)
      << "later sequences are told the same";
  ASSERT_TRUE(engine->SetExecutor(std::make_unique<FakeExecutor>(kModel), 64).ok());
  auto again = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 5), again).ok());
  EXPECT_TRUE(again->Wait().status.ok());
}

TEST(Engine, QueueIsBounded) {
  auto engine = *Engine::Create(Options());
  std::promise<absl::Status> open;
  ASSERT_TRUE(engine->SetExecutor(std::make_unique<Gate>(open.get_future().share()), 64).ok());
  std::vector<std::shared_ptr<Collector>> sinks;
  absl::Status status;
  while (status.ok() && sinks.size() < 100) {
    sinks.push_back(std::make_shared<Collector>());
    status = engine->Submit(MakeRequest(*engine, 5), sinks.back());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sinks.size(), 13u) << "8 running, 4 waiting, and the refused one";
  open.set_value(absl::UnavailableError("gone"));
}

TEST(Engine, CancelEndsASequence) {
  auto engine = Started();
  auto sink = std::make_shared<Collector>();
  const Request request = MakeRequest(*engine, 123);
  ASSERT_TRUE(engine->Submit(request, sink).ok());
  engine->Cancel(request.id, FinishReason::kAbort, absl::CancelledError("gone"));
  EXPECT_EQ(sink->Wait().status.code(), absl::StatusCode::kCancelled);
}

TEST(Engine, DrainFinishesLiveSequencesAndRefusesNewOnes) {
  auto engine = Started();
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 100), sink).ok());
  EXPECT_TRUE(engine->Drain(absl::Seconds(20)));
  EXPECT_EQ(sink->tokens().size(), 100u);
  const absl::Status refused =
      engine->Submit(MakeRequest(*engine, 1), std::make_shared<Collector>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(refused.message().find("DRAINING"), std::string::npos);
}

// The fake model, whose second answer waits.
class SecondStepWaits final : public StepExecutor {
 public:
  explicit SecondStepWaits(std::shared_future<absl::Status> second) : second_(std::move(second)) {}
  absl::Status Launch(const StepPlan& plan) override { return model_.Launch(plan); }
  absl::StatusOr<StepResult> Collect() override {
    if (++collected_ == 2) {
      const absl::Status status = second_.get();
      if (!status.ok()) return status;
    }
    return model_.Collect();
  }

 private:
  FakeExecutor model_{kModel};
  std::shared_future<absl::Status> second_;
  int collected_ = 0;
};

// A sequence that meets a stop id has had a step launched ahead. Whoever drains may tear the
// executor down afterwards, so that step has to be over too.
TEST(Engine, DrainWaitsForTheStepLaunchedAhead) {
  std::atomic<int> lost = 0;
  EngineOptions options = Options();
  options.on_executor_lost = [&](const absl::Status&) { ++lost; };
  std::promise<absl::Status> second;
  auto engine = *Engine::Create(options);
  ASSERT_TRUE(
      engine->SetExecutor(std::make_unique<SecondStepWaits>(second.get_future().share()), 64).ok());
  auto sink = std::make_shared<Collector>();
  Request request = MakeRequest(*engine, 100);
  request.sampling.stop_token_ids = {FakeNextToken(request.prompt, kModel.vocab)};
  ASSERT_TRUE(engine->Submit(std::move(request), sink).ok());
  EXPECT_EQ(sink->Wait().reason, FinishReason::kStop);
  std::future<bool> drained =
      std::async(std::launch::async, [&] { return engine->Drain(absl::Seconds(20)); });
  EXPECT_EQ(drained.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  second.set_value(absl::OkStatus());
  EXPECT_TRUE(drained.get());
  EXPECT_EQ(lost, 0);
}

TEST(Engine, DrainDoesNotWaitForeverForTheStepLaunchedAhead) {
  std::promise<absl::Status> second;
  auto engine = *Engine::Create(Options());
  ASSERT_TRUE(
      engine->SetExecutor(std::make_unique<SecondStepWaits>(second.get_future().share()), 64).ok());
  auto sink = std::make_shared<Collector>();
  Request request = MakeRequest(*engine, 100);
  request.sampling.stop_token_ids = {FakeNextToken(request.prompt, kModel.vocab)};
  ASSERT_TRUE(engine->Submit(std::move(request), sink).ok());
  sink->Wait();
  EXPECT_TRUE(engine->Drain(absl::Milliseconds(20))) << "every sequence has ended";
  second.set_value(absl::UnavailableError("torn down"));
}

TEST(Engine, DestructionEndsLiveSequences) {
  auto sink = std::make_shared<Collector>();
  {
    auto engine = Started();
    ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 120), sink).ok());
  }
  sink->Wait();
}

TEST(Engine, RejectsACacheTooSmallForOneSequence) {
  auto engine = *Engine::Create(Options());
  EXPECT_EQ(engine->SetExecutor(std::make_unique<FakeExecutor>(kModel), 3).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Engine, FlushForgetsCachedPages) {
  auto engine = Started();
  auto sink = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 10), sink).ok());
  sink->Wait();
  engine->FlushPrefixCache();
  auto again = std::make_shared<Collector>();
  ASSERT_TRUE(engine->Submit(MakeRequest(*engine, 10), again).ok());
  again->Wait();
  engine->FlushPrefixCache();
  EXPECT_EQ(engine->Stats().scheduler.prefix_hits, 0);
}

}  // namespace
}  // namespace millrace
