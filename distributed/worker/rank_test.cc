#include "distributed/worker/rank.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "distributed/step_wire/step_wire.h"
#include "distributed/worker/fake_model.h"
#include "engine/testing/fake_gpu.h"

namespace millrace {
namespace {

class Inbox {
 public:
  void Put(const worker::WorkerMessage& message) {
    const std::lock_guard<std::mutex> lock(mu_);
    messages_.push_back(message);
    changed_.notify_all();
  }
  // The steps answered so far, once there are `count`.
  std::vector<int64_t> WaitForSteps(size_t count) {
    std::unique_lock<std::mutex> lock(mu_);
    std::vector<int64_t> steps;
    changed_.wait_for(lock, std::chrono::seconds(30), [&] {
      steps.clear();
      for (const worker::WorkerMessage& m : messages_) {
        if (m.has_step_done()) steps.push_back(m.step_done().step());
      }
      return steps.size() >= count;
    });
    return steps;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<worker::WorkerMessage> messages_;
};

// A rank that is alone, on a device that may be lost, ready for steps.
class RankTest : public testing::Test {
 protected:
  void Start(int64_t fail_step) {
    factory_ = std::make_unique<FakeModelFactory>(FakeModelOptions{.fail_step = fail_step});
    rank_ = std::make_unique<Rank>(RankOptions{.device = &gpu_, .factory = factory_.get()},
                                   [this](const worker::WorkerMessage& m) { inbox_.Put(m); });
    worker::ControllerMessage assign, load, configure;
    RunnerConfig config;
    config.max_model_len = 64;
    assign.mutable_assign()->set_world(1);
    *assign.mutable_assign()->mutable_config() = ToProto(config);
    load.mutable_load();
    configure.mutable_configure()->set_num_pages(8);
    rank_->Push(assign);
    rank_->Push(load);
    rank_->Push(configure);
  }

  void PushStep(int64_t step) {
    StepPlan plan;
    plan.step = step;
    plan.sequences.emplace_back();
    SequencePlan& s = plan.sequences[0];
    s.sample = true;
    if (step == 1) {
      s.init = SlotInit();
      s.new_pages = {0};
      s.tokens = {5, 6};
    } else {
      s.position = static_cast<int32_t>(step);
    }
    worker::ControllerMessage message;
    *message.mutable_step() = ToProto(plan);
    rank_->Push(message);
  }

  FakeGpu gpu_;
  Inbox inbox_;
  std::unique_ptr<FakeModelFactory> factory_;
  std::unique_ptr<Rank> rank_;
};

TEST_F(RankTest, StepsAreAnsweredInOrder) {
  Start(/*fail_step=*/0);
  for (int64_t step = 1; step <= 5; ++step) PushStep(step);
  EXPECT_EQ(inbox_.WaitForSteps(5), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(RankTest, AFailedStepIsNotForGood) {
  Start(/*fail_step=*/1);
  PushStep(1);
  ASSERT_TRUE(rank_->WaitUntilDone(absl::Seconds(30)));
  EXPECT_FALSE(rank_->error().ok());
  EXPECT_FALSE(rank_->failed_for_good());
}

// The next group could not use the device either: the worker has to end.
TEST_F(RankTest, AFailedStepThatTookTheDeviceAlongIs) {
  gpu_.health = absl::InternalError("an illegal address");
  Start(/*fail_step=*/1);
  PushStep(1);
  ASSERT_TRUE(rank_->WaitUntilDone(absl::Seconds(30)));
  EXPECT_TRUE(rank_->failed_for_good());
}

}  // namespace
}  // namespace millrace
