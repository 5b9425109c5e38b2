#include "engine/scheduler/data_parallel_scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

SchedulerConfig Config(int32_t groups) {
  return {.num_pages = 16,
          .page_tokens = 4,
          .max_num_seqs = 2,
          .max_num_batched_tokens = 32,
          .max_model_len = 24,
          .max_waiting = 3,
          .data_parallel_size = groups};
}

Request RequestOf(SequenceId id, std::vector<int32_t> prompt, int32_t max_tokens = 3) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

// Samples token 10 + group for every sequence that asks for one.
StepResult ResultOf(const StepPlan& plan) {
  StepResult result = {.step = plan.step, .sequences = {}};
  for (const SequencePlan& s : plan.sequences) {
    result.sequences.push_back({.slot = s.slot, .token = s.sample ? 10 + s.group : -1});
  }
  return result;
}

struct Log {
  std::map<SequenceId, std::vector<int32_t>> tokens;
  std::set<SequenceId> finished;
};

void Take(DataParallelScheduler& scheduler, Log& log) {
  for (const SchedulerEvent& event : scheduler.TakeEvents()) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) {
      log.tokens[token->id].push_back(token->token);
    } else {
      EXPECT_TRUE(log.finished.insert(std::get<FinishEvent>(event).id).second);
    }
  }
}

// Runs to the end; groups that were in one step together.
std::set<std::vector<int32_t>> RunToTheEnd(DataParallelScheduler& scheduler, Log& log) {
  std::set<std::vector<int32_t>> together;
  int64_t step = 0;
  while (const std::optional<StepPlan> plan = scheduler.Next()) {
    EXPECT_EQ(plan->step, step == 0 ? plan->step : step + 1);
    step = plan->step;
    std::vector<int32_t> groups;
    for (const SequencePlan& s : plan->sequences) groups.push_back(s.group);
    EXPECT_TRUE(std::is_sorted(groups.begin(), groups.end()));
    together.insert(groups);
    scheduler.Commit(ResultOf(*plan));
    Take(scheduler, log);
    EXPECT_TRUE(scheduler.CheckIntegrity().ok()) << scheduler.CheckIntegrity();
  }
  return together;
}

TEST(DataParallelSchedulerTest, SpreadsSequencesAndStepsThemTogether) {
  DataParallelScheduler scheduler(Config(2));
  Log log;
  for (SequenceId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(scheduler.Admit(RequestOf(id, {static_cast<int32_t>(id), 2, 3})).ok());
  }
  EXPECT_EQ(scheduler.Admit(RequestOf(4, {1})).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(RunToTheEnd(scheduler, log), (std::set<std::vector<int32_t>>{{0, 0, 1, 1}}));
  EXPECT_EQ(log.finished.size(), 4u);
  EXPECT_EQ(log.tokens[1], std::vector<int32_t>(3, 10));
  EXPECT_EQ(log.tokens[2], std::vector<int32_t>(3, 11));
  EXPECT_EQ(scheduler.stats().generated_tokens, 12);
  EXPECT_EQ(scheduler.stats().pages_total, 32);
}

TEST(DataParallelSchedulerTest, AGroupWithoutWorkIsLeftOut) {
  DataParallelScheduler scheduler(Config(3));
  Log log;
  ASSERT_TRUE(scheduler.Admit(RequestOf(1, {1, 2}, 6)).ok());
  ASSERT_TRUE(scheduler.Admit(RequestOf(2, {3, 4}, 2)).ok());
  EXPECT_EQ(RunToTheEnd(scheduler, log), (std::set<std::vector<int32_t>>{{0, 1}, {0}}));
  EXPECT_EQ(log.finished.size(), 2u);
}

TEST(DataParallelSchedulerTest, FollowsACachedPrefixUnlessItsGroupIsFull) {
  DataParallelScheduler scheduler(Config(2));
  Log log;
  const std::vector<int32_t> prompt = {7, 7, 7, 7, 8, 8, 8, 8, 9};
  ASSERT_TRUE(scheduler.Admit(RequestOf(1, {1, 2}, 1)).ok());
  ASSERT_TRUE(scheduler.Admit(RequestOf(2, prompt, 1)).ok());  // group 1
  RunToTheEnd(scheduler, log);
  for (SequenceId id = 3; id <= 5; ++id) ASSERT_TRUE(scheduler.Admit(RequestOf(id, prompt)).ok());
  RunToTheEnd(scheduler, log);
  EXPECT_EQ(log.tokens[3][0], 11);
  EXPECT_EQ(log.tokens[4][0], 11);
  EXPECT_EQ(log.tokens[5][0], 10);  // both slots of group 1 were taken
}

TEST(DataParallelSchedulerTest, FinishReachesTheRightGroupAndFailAllEveryone) {
  DataParallelScheduler scheduler(Config(2));
  Log log;
  for (SequenceId id = 1; id <= 4; ++id) ASSERT_TRUE(scheduler.Admit(RequestOf(id, {1, 2})).ok());
  ASSERT_TRUE(scheduler.Next().has_value());
  scheduler.Finish(2, FinishReason::kAbort);
  scheduler.Finish(99, FinishReason::kAbort);
  Take(scheduler, log);
  EXPECT_EQ(log.finished, std::set<SequenceId>{2});
  scheduler.FailAll(absl::UnavailableError("gone"));
  Take(scheduler, log);
  EXPECT_EQ(log.finished.size(), 4u);
  EXPECT_FALSE(scheduler.Next().has_value());
  EXPECT_TRUE(scheduler.CheckIntegrity().ok());
}

}  // namespace
}  // namespace millrace
