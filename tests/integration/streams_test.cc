// A thousand concurrent streams against a fake executor: all end, and none is wrong.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/controller/frontdoor/testing/server_fixture.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

namespace pb = ::vllm::grpc::engine;

constexpr int kStreams = 1000;
constexpr int kChannels = 8;

struct Tally {
  std::mutex mu;
  std::condition_variable changed;
  int done = 0;
  int wrong = 0;
  std::string first_error;

  void Count(const std::string& error) {
    std::lock_guard lock(mu);
    ++done;
    if (!error.empty() && wrong++ == 0) first_error = error;
    changed.notify_all();
  }
};

// One stream on the callback API, so that a thousand of them need no threads here.
class Reader final : public grpc::ClientReadReactor<pb::GenerateResponse> {
 public:
  Reader(pb::VllmEngine::Stub& stub, int number, Tally& tally) : tally_(tally) {
    // Digits count on from the prompt's last one, so each stream has an answer of its own.
    last_ = number % 10;
    length_ = 20 + number % 37;
    request_.set_text("stream " + std::to_string(number));
    request_.set_stream(true);
    request_.mutable_sampling_params()->set_max_tokens(static_cast<uint32_t>(length_));
    stub.async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_chunk()) text_ += response_.chunk().text_delta();
    if (response_.has_complete()) ends_.push_back(response_.complete().text());
    StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    std::string expected;
    for (int i = 1; i <= length_; ++i) expected += static_cast<char>('0' + (last_ + i) % 10);
    std::string error;
    if (!status.ok()) error = status.error_message();
    if (error.empty() && text_ != expected) error = "text is " + text_ + ", want " + expected;
    if (error.empty() && ends_ != std::vector<std::string>{expected}) error = "wrong end";
    tally_.Count(error);
  }

 private:
  Tally& tally_;
  int last_ = 0;
  int length_ = 0;
  grpc::ClientContext context_;
  pb::GenerateRequest request_;
  pb::GenerateResponse response_;
  std::string text_;
  std::vector<std::string> ends_;
};

class StreamsTest : public ServerFixture {
 protected:
  void SetUp() override {
    options_.scheduler.max_num_seqs = 32;
    options_.scheduler.max_num_batched_tokens = 512;
    options_.scheduler.max_waiting = kStreams;
    options_.stream_threads = 2;
    StartServer();
  }
};

TEST_F(StreamsTest, AThousandAtOnce) {
  control_->paused = true;  // until all are there
  std::vector<std::unique_ptr<pb::VllmEngine::Stub>> stubs;
  for (int i = 0; i < kChannels; ++i) stubs.push_back(pb::VllmEngine::NewStub(NewChannel()));
  Tally tally;
  std::vector<std::unique_ptr<Reader>> readers;
  for (int i = 0; i < kStreams; ++i) {
    readers.push_back(std::make_unique<Reader>(*stubs[i % kChannels], i, tally));
  }
  EXPECT_TRUE(Eventually([&] { return server_->running_calls() == kStreams; }));
  control_->paused = false;
  std::unique_lock lock(tally.mu);
  tally.changed.wait(lock, [&] { return tally.done == kStreams; });
  EXPECT_EQ(tally.wrong, 0) << tally.first_error;
  lock.unlock();
  EXPECT_TRUE(Eventually([&] { return PagesAreBack() && server_->running_calls() == 0; }));
  ExpectServesOn();
}

}  // namespace
}  // namespace millrace
