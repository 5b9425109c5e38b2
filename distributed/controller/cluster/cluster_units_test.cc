// The parts of the hub that need no network.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "distributed/controller/cluster/hello_check.h"
#include "distributed/controller/cluster/page_sizing.h"
#include "distributed/controller/cluster/rendezvous_store.h"
#include "distributed/controller/cluster/worker_group.h"

namespace millrace {
namespace {

worker::Hello GoodHello() {
  worker::Hello hello;
  hello.set_build_version("1.0");
  hello.set_protocol_revision("abc");
  hello.set_host("a");
  hello.set_pid(7);
  hello.set_device_kind("cpu");
  return hello;
}

const HelloRules kRules = {.build_version = "1.0",
                           .protocol_revision = "abc",
                           .model_fingerprint = "f00d",
                           .device_kind = "cpu",
                           .tensor_parallel_size = 2};

TEST(HelloCheckTest, TakesWhatFits) {
  worker::Hello hello = GoodHello();
  EXPECT_TRUE(CheckHello(hello, kRules).ok());
  hello.set_model_fingerprint("f00d");
  hello.set_tensor_parallel_size(2);
  EXPECT_TRUE(CheckHello(hello, kRules).ok());
}

TEST(HelloCheckTest, NamesEveryDifferenceWithBothValues) {
  worker::Hello hello = GoodHello();
  hello.set_build_version("2.0");
  hello.set_protocol_revision("xyz");
  hello.set_model_fingerprint("beef");
  hello.set_device_kind("cuda");
  hello.set_tensor_parallel_size(4);
  const absl::Status status = CheckHello(hello, kRules);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "worker and controller differ: build version: worker 2.0, controller 1.0; protocol "
            "revision: worker xyz, controller abc; device kind: worker cuda, controller cpu; model "
            "fingerprint: worker beef, controller f00d; tensor parallel size: worker 4, "
            "controller 2");
}

TEST(HelloCheckTest, RefusesTextsThatWouldSpoilALog) {
  worker::Hello hello = GoodHello();
  hello.set_host("a\nb");
  EXPECT_EQ(CheckHello(hello, kRules).code(), absl::StatusCode::kInvalidArgument);
  hello.set_host(std::string(5000, 'x'));
  EXPECT_EQ(CheckHello(hello, kRules).code(), absl::StatusCode::kInvalidArgument);
  hello.set_host("\x1b[2J");
  EXPECT_EQ(CheckHello(hello, kRules).code(), absl::StatusCode::kInvalidArgument);
}

RankRoom Room(const char* host, int64_t page, int64_t free, const char* memory_id = "") {
  return {
      host,
      memory_id,
      {.weight_bytes = 1, .workspace_bytes = 1, .bytes_per_page = page, .available_bytes = free}};
}

TEST(PageSizingTest, SmallestRankDecidesAndMemoryIsShared) {
  const PageRequest request = {.memory_utilization = 0.5, .page_tokens = 16, .max_model_len = 100};
  EXPECT_EQ(SizePages({Room("a", 10, 1000)}, request).value(), 50);
  EXPECT_EQ(SizePages({Room("a", 10, 1000), Room("b", 10, 600)}, request).value(), 30);
  EXPECT_EQ(SizePages({Room("a", 10, 1000), Room("a", 10, 1000)}, request).value(), 25);
  EXPECT_EQ(SizePages({Room("a", 10, 1000), Room("b", 20, 1000)}, request).value(), 25);
  // Two GPUs of one host, and two ranks on one of them.
  EXPECT_EQ(SizePages({Room("a", 10, 1000, "g0"), Room("a", 10, 1000, "g1")}, request).value(), 50);
  EXPECT_EQ(SizePages({Room("a", 10, 1000, "g0"), Room("a", 10, 1000, "g0")}, request).value(), 25);
}

TEST(PageSizingTest, MoreOfAGpuThanOfAHost) {
  const PageRequest request = {.page_tokens = 16, .max_model_len = 100};
  EXPECT_EQ(SizePages({Room("a", 10, 1000)}, request).value(), 50);
  EXPECT_EQ(SizePages({Room("a", 10, 1000, "g0")}, request).value(), 90);
}

TEST(PageSizingTest, GivenSizes) {
  const std::vector<RankRoom> ranks = {Room("a", 10, 1000), Room("b", 10, 1000)};
  EXPECT_EQ(SizePages(ranks, {.num_pages = 77, .max_model_len = 100}).value(), 77);
  EXPECT_EQ(SizePages(ranks, {.kv_cache_memory_bytes = 305, .max_model_len = 100}).value(), 30);
}

TEST(PageSizingTest, TooLittleIsRefusedWithTheRankAndTheFlags) {
  const auto pages = SizePages({Room("a", 10, 1000), Room("b", int64_t{1} << 30, 1000)},
                               {.page_tokens = 16, .max_model_len = 17});
  EXPECT_EQ(pages.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(pages.status().message());
  for (const char* part : {"rank 1 on b", "want 2", "2.00 GiB short", "--max-model-len"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_FALSE(SizePages({Room("a", 10, 1000)}, {.num_pages = 101, .max_model_len = 1}).ok());
}

TEST(RendezvousStoreTest, AnswersNowOrLater) {
  RendezvousStore store;
  EXPECT_FALSE(store.Get("k", {.rank = 1, .id = 5}).value().has_value());
  EXPECT_FALSE(store.Get("k", {.rank = 0, .id = 9}).value().has_value());
  const auto waiters = store.Set("k", "v").value();
  ASSERT_EQ(waiters.size(), 2u);
  EXPECT_EQ(waiters[0].rank, 1);
  EXPECT_EQ(waiters[1].id, 9u);
  EXPECT_EQ(store.Get("k", {}).value(), "v");
  EXPECT_EQ(store.Set("k", "w").status().code(), absl::StatusCode::kAlreadyExists);
}

TEST(RendezvousStoreTest, Caps) {
  RendezvousStore store;
  EXPECT_FALSE(store.Set(std::string(257, 'k'), "").ok());
  EXPECT_FALSE(store.Set("k", std::string(65537, 'v')).ok());
  for (size_t i = 0; i < RendezvousStore::kMaxKeys; ++i) {
    ASSERT_TRUE(store.Set(std::to_string(i), "").ok());
  }
  EXPECT_FALSE(store.Set("one more", "").ok());
  RendezvousStore waits;
  for (size_t i = 0; i < RendezvousStore::kMaxKeys; ++i) ASSERT_TRUE(waits.Get("k", {}).ok());
  EXPECT_FALSE(waits.Get("k", {}).ok());
}

const StepLimits kLimits = {.max_num_seqs = 4,
                            .max_num_batched_tokens = 16,
                            .max_model_len = 64,
                            .num_pages = 8,
                            .vocab_size = 100};

StepPlan PlanOf(int64_t step, int32_t slot) {
  return {.step = step, .sequences = {{.slot = slot, .tokens = {1}, .sample = true}}};
}

worker::StepDone DoneOf(int64_t step, int32_t slot, int32_t token) {
  return ToProto(StepResult{.step = step, .sequences = {{.slot = slot, .token = token}}});
}

worker::StepDone EmptyDone(int64_t step) {
  worker::StepDone done;
  done.set_step(step);
  return done;
}

class GroupStepsTest : public testing::Test {
 protected:
  std::vector<std::pair<int32_t, std::string>> sent_;
  std::shared_ptr<GroupSteps> steps_ = std::make_shared<GroupSteps>(
      2, kLimits, [this](int32_t rank, std::shared_ptr<const std::string> bytes) {
        sent_.emplace_back(rank, *bytes);
      });
  WorkerGroup group_{steps_};
};

TEST_F(GroupStepsTest, TwoStepsInFlight) {
  ASSERT_TRUE(group_.Launch(PlanOf(1, 0)).ok());
  ASSERT_TRUE(group_.Launch(PlanOf(2, 3)).ok());
  ASSERT_EQ(sent_.size(), 4u);
  EXPECT_EQ(sent_[0].second, sent_[1].second);
  EXPECT_EQ(sent_[3].first, 1);
  worker::ControllerMessage message;
  ASSERT_TRUE(message.ParseFromString(sent_[2].second));
  EXPECT_EQ(message.step().step(), 2);
  ASSERT_TRUE(steps_->OnStepDone(0, DoneOf(1, 0, 11)).ok());
  ASSERT_TRUE(steps_->OnStepDone(0, DoneOf(2, 3, 22)).ok());
  ASSERT_TRUE(steps_->OnStepDone(1, EmptyDone(1)).ok());
  EXPECT_EQ(group_.Collect()->sequences[0].token, 11);
  ASSERT_TRUE(steps_->OnStepDone(1, EmptyDone(2)).ok());
  EXPECT_EQ(group_.Collect()->sequences[0].token, 22);
}

TEST_F(GroupStepsTest, AnswersThatAnswerNothingAreRefused) {
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(1, 0, 1)).ok()) << "no step was launched";
  ASSERT_TRUE(group_.Launch(PlanOf(1, 0)).ok());
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(2, 0, 1)).ok()) << "another step";
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(1, 1, 1)).ok()) << "another slot";
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(1, 0, -1)).ok()) << "not sampled";
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(1, 0, 100)).ok()) << "outside of the vocabulary";
  EXPECT_FALSE(steps_->OnStepDone(0, EmptyDone(1)).ok()) << "a sequence is missing";
  EXPECT_FALSE(steps_->OnStepDone(1, DoneOf(1, 0, 1)).ok()) << "results of another rank";
  EXPECT_TRUE(steps_->OnStepDone(0, DoneOf(1, 0, 99)).ok());
  EXPECT_FALSE(steps_->OnStepDone(0, DoneOf(1, 0, 99)).ok()) << "twice";
}

TEST_F(GroupStepsTest, LossEndsWaitsAndLaterCalls) {
  ASSERT_TRUE(group_.Launch(PlanOf(1, 0)).ok());
  ASSERT_TRUE(group_.Launch(PlanOf(2, 0)).ok());
  ASSERT_TRUE(steps_->OnStepDone(0, DoneOf(1, 0, 5)).ok());
  ASSERT_TRUE(steps_->OnStepDone(1, EmptyDone(1)).ok());
  std::thread loser([&] { steps_->MarkLost(absl::UnavailableError("rank 1 is gone")); });
  EXPECT_TRUE(group_.Collect().ok()) << "was done before";
  const auto second = group_.Collect();
  EXPECT_EQ(second.status().message(), "rank 1 is gone");
  EXPECT_EQ(group_.Launch(PlanOf(3, 0)).code(), absl::StatusCode::kUnavailable);
  loser.join();
}

TEST_F(GroupStepsTest, OverdueNamesWhoIsMissing) {
  ASSERT_TRUE(group_.Launch(PlanOf(1, 0)).ok());
  const absl::Time now = absl::Now();
  EXPECT_FALSE(steps_->CheckOverdue(now, absl::Seconds(5)).has_value());
  ASSERT_TRUE(steps_->OnStepDone(0, DoneOf(1, 0, 5)).ok());
  const auto overdue = steps_->CheckOverdue(now + absl::Seconds(6), absl::Seconds(5));
  ASSERT_TRUE(overdue.has_value());
  EXPECT_EQ(overdue->step, 1);
  EXPECT_EQ(overdue->ranks, std::vector<int32_t>{1});
  ASSERT_TRUE(steps_->OnStepDone(1, EmptyDone(1)).ok());
  EXPECT_FALSE(steps_->CheckOverdue(now + absl::Seconds(6), absl::Seconds(5)).has_value());
}

}  // namespace
}  // namespace millrace
