#include "engine/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/testing/fake_executor.h"

namespace millrace {
namespace {

SchedulerConfig SmallConfig() {
  return {.num_pages = 16,
          .page_tokens = 4,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 32,
          .max_model_len = 64};
}

Request MakeRequest(SequenceId id, int32_t prompt, int32_t max_tokens, int32_t first = 100) {
  Request request{.id = id};
  request.prompt.resize(prompt);
  std::iota(request.prompt.begin(), request.prompt.end(), first);
  request.sampling.max_tokens = max_tokens;
  return request;
}

StepResult Answer(const StepPlan& plan, int32_t token) {
  StepResult result{.step = plan.step};
  for (const SequencePlan& seq : plan.sequences) {
    result.sequences.push_back({.slot = seq.slot, .token = seq.sample ? token : -1});
  }
  return result;
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Scheduler s(SmallConfig());
  EXPECT_EQ(s.Admit(MakeRequest(1, 0, 1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(s.Admit(MakeRequest(1, 1, 0)).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status too_long = s.Admit(MakeRequest(1, 60, 5));
  EXPECT_EQ(too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(too_long.message(),
            "a prompt of 60 tokens and max_tokens 5 exceed the context of 64 tokens");
  EXPECT_TRUE(s.Admit(MakeRequest(1, 60, 4)).ok());
  EXPECT_EQ(s.Admit(MakeRequest(1, 1, 1)).code(), absl::StatusCode::kAlreadyExists);
}

TEST(Scheduler, RefusesWhenTheQueueIsFull) {
  SchedulerConfig config = SmallConfig();
  config.max_waiting = 2;
  Scheduler s(config);
  EXPECT_TRUE(s.Admit(MakeRequest(1, 1, 1)).ok());
  EXPECT_TRUE(s.Admit(MakeRequest(2, 1, 1)).ok());
  EXPECT_EQ(s.Admit(MakeRequest(3, 1, 1)).code(), absl::StatusCode::kResourceExhausted);
}

TEST(SchedulerConfig, NamesWhatIsWrong) {
  SchedulerConfig config = SmallConfig();
  EXPECT_TRUE(config.Validate().ok());
  config.num_pages = 15;
  EXPECT_NE(config.Validate().message().find("holds 60 tokens, but --max-model-len is 64"),
            std::string::npos);
  config = SmallConfig();
  config.page_tokens = 0;
  EXPECT_NE(config.Validate().message().find("page_tokens = 0"), std::string::npos);
}

TEST(Scheduler, PlansTheNextStepBeforeTheLastIsCommitted) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 3, 3)).ok());
  const StepPlan first = *s.Next();
  ASSERT_EQ(first.sequences.size(), 1u);
  EXPECT_EQ(first.sequences[0].tokens, (std::vector<int32_t>{100, 101, 102}));
  EXPECT_TRUE(first.sequences[0].init.has_value());
  EXPECT_TRUE(first.sequences[0].sample);
  const StepPlan second = *s.Next();
  EXPECT_TRUE(second.sequences[0].tokens.empty()) << "the token is still on the device";
  EXPECT_EQ(second.sequences[0].position, 3);
  EXPECT_FALSE(second.sequences[0].init.has_value());
  const StepPlan third = *s.Next();
  EXPECT_EQ(third.sequences[0].position, 4);
  EXPECT_EQ(third.sequences[0].new_pages.size(), 1u);
  EXPECT_FALSE(s.Next().has_value()) << "max_tokens is reached";
  for (const StepPlan& plan : {first, second, third}) s.Commit(Answer(plan, 7));
  EXPECT_TRUE(s.idle());
  const auto events = s.TakeEvents();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(std::get<FinishEvent>(events[3]).reason, FinishReason::kLength);
}

TEST(Scheduler, DropsTheSurplusTokenOfASequenceThatEnded) {
  Scheduler s(SmallConfig());
  Request request = MakeRequest(1, 2, 10);
  request.sampling.stop_token_ids = {7};
  ASSERT_TRUE(s.Admit(request).ok());
  const StepPlan first = *s.Next();
  const StepPlan second = *s.Next();
  s.Commit(Answer(first, 7));
  EXPECT_EQ(s.stats().pages_used, 0);
  s.Commit(Answer(second, 8));
  const auto events = s.TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<FinishEvent>(events[1]).matched_token, 7);
}

TEST(Scheduler, StopIdsDoNotEndBeforeMinTokens) {
  Scheduler s(SmallConfig());
  Request request = MakeRequest(1, 2, 10);
  request.sampling.stop_token_ids = {7};
  request.sampling.min_tokens = 2;
  ASSERT_TRUE(s.Admit(request).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(s.idle()) << i;
    s.Commit(Answer(*s.Next(), 7));
  }
  EXPECT_TRUE(s.idle());
}

TEST(Scheduler, ChunksLongPromptsWithinTheBudgetAndKeepsDecodesGoing) {
  SchedulerConfig config = SmallConfig();
  config.max_num_batched_tokens = 8;
  Scheduler s(config);
  ASSERT_TRUE(s.Admit(MakeRequest(1, 3, 20)).ok());
  s.Commit(Answer(*s.Next(), 5));
  ASSERT_TRUE(s.Admit(MakeRequest(2, 20, 2, 500)).ok());
  const int32_t expected_chunks[] = {7, 7, 6};
  for (int32_t chunk : expected_chunks) {
    const StepPlan plan = *s.Next();
    ASSERT_EQ(plan.sequences.size(), 2u);
    EXPECT_EQ(plan.sequences[0].num_tokens(), 1) << "the decode comes first";
    EXPECT_EQ(plan.sequences[1].num_tokens(), chunk);
    EXPECT_EQ(plan.sequences[1].sample, chunk == 6);
    s.Commit(Answer(plan, 5));
  }
}

TEST(Scheduler, ReusesFullPagesButComputesTheLastToken) {
  for (const int32_t prompt : {11, 12, 13}) {
    Scheduler s(SmallConfig());
    ASSERT_TRUE(s.Admit(MakeRequest(1, prompt, 1)).ok());
    s.Commit(Answer(*s.Next(), 5));
    EXPECT_EQ(s.stats().pages_cached, prompt / 4);
    ASSERT_TRUE(s.Admit(MakeRequest(2, prompt, 1)).ok());
    const StepPlan plan = *s.Next();
    EXPECT_EQ(plan.sequences[0].position, (prompt - 1) / 4 * 4);
    EXPECT_EQ(s.stats().prefix_hits, (prompt - 1) / 4 * 4);
    s.Commit(Answer(plan, 5));
    EXPECT_TRUE(s.CheckIntegrity().ok());
  }
}

TEST(Scheduler, SaltsKeepPrefixesApartAndFlushForgetsThem) {
  Scheduler s(SmallConfig());
  Request salted = MakeRequest(1, 12, 1);
  salted.cache_salt = "a";
  ASSERT_TRUE(s.Admit(salted).ok());
  s.Commit(Answer(*s.Next(), 5));
  ASSERT_TRUE(s.Admit(MakeRequest(2, 12, 1)).ok());
  StepPlan plan = *s.Next();
  EXPECT_EQ(plan.sequences[0].position, 0);
  s.Commit(Answer(plan, 5));
  s.FlushPrefixCache();
  EXPECT_EQ(s.stats().pages_free, 16);
  ASSERT_TRUE(s.Admit(MakeRequest(3, 12, 1)).ok());
  EXPECT_EQ(s.Next()->sequences[0].position, 0);
}

TEST(Scheduler, TwinsWaitForTheFirstToComputeTheirPrompt) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 12, 4)).ok());
  ASSERT_TRUE(s.Admit(MakeRequest(2, 12, 4)).ok());
  ASSERT_TRUE(s.Admit(MakeRequest(3, 12, 4, 900)).ok());
  const StepPlan first = *s.Next();
  EXPECT_EQ(first.sequences.size(), 2u) << "1 and 3 run, 2 waits for the pages of 1";
  s.Commit(Answer(first, 5));
  const StepPlan second = *s.Next();
  ASSERT_EQ(second.sequences.size(), 3u);
  EXPECT_EQ(second.sequences[2].position, 8);
  EXPECT_EQ(second.sequences[2].num_tokens(), 4);
}

TEST(Scheduler, PreemptsTheLatestArrivalAndRecomputesIt) {
  SchedulerConfig config = SmallConfig();
  config.enable_prefix_caching = false;
  Scheduler s(config);
  ASSERT_TRUE(s.Admit(MakeRequest(1, 31, 33)).ok());
  s.Commit(Answer(*s.Next(), 5));
  ASSERT_TRUE(s.Admit(MakeRequest(2, 27, 37, 500)).ok());
  int64_t steps = 0;
  while (s.stats().preemptions == 0 && ++steps < 100) s.Commit(Answer(*s.Next(), 5));
  EXPECT_EQ(s.stats().preemptions, 1);
  EXPECT_EQ(s.stats().running, 1);
  EXPECT_EQ(s.stats().waiting, 1);
  while (!s.idle() && ++steps < 300) s.Commit(Answer(*s.Next(), 5));
  EXPECT_TRUE(s.idle());
  int32_t tokens[3] = {};
  for (const auto& event : s.TakeEvents()) {
    if (const auto* token = std::get_if<TokenEvent>(&event)) ++tokens[token->id];
  }
  EXPECT_EQ(tokens[1], 33);
  EXPECT_EQ(tokens[2], 37);
}

TEST(Scheduler, SendsHistoryOnlyForPenalties) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 3, 1)).ok());
  Request penal = MakeRequest(2, 3, 1);
  penal.sampling.presence_penalty = 0.5f;
  ASSERT_TRUE(s.Admit(penal).ok());
  const StepPlan plan = *s.Next();
  EXPECT_TRUE(plan.sequences[0].init->history.empty());
  EXPECT_EQ(plan.sequences[1].init->history.size(), 3u);
  EXPECT_EQ(plan.sequences[1].init->prompt_tokens, 3);
}

TEST(Scheduler, FinishFreesPagesAtOnceAndIgnoresUnknownIds) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 9, 5)).ok());
  ASSERT_TRUE(s.Admit(MakeRequest(12, 9, 5, 300)).ok());
  const StepPlan plan = *s.Next();
  s.Finish(1, FinishReason::kAbort);
  s.Finish(2, FinishReason::kAbort);
  EXPECT_EQ(s.stats().running, 1);
  EXPECT_EQ(s.stats().pages_used, 3);
  s.Commit(Answer(plan, 5));
  s.Finish(12, FinishReason::kStop);
  EXPECT_EQ(s.stats().pages_used, 0);
  EXPECT_TRUE(s.idle());
  EXPECT_TRUE(s.CheckIntegrity().ok());
}

TEST(Scheduler, DeadlinesEndWaitingAndRunningSequences) {
  Scheduler s(SmallConfig());
  const absl::Time now = absl::FromUnixSeconds(1000);
  Request late = MakeRequest(1, 4, 5);
  late.deadline = now - absl::Seconds(1);
  Request fine = MakeRequest(2, 4, 5, 300);
  fine.deadline = now + absl::Seconds(1);
  ASSERT_TRUE(s.Admit(late).ok());
  ASSERT_TRUE(s.Admit(fine).ok());
  s.FinishExpired(now);
  const auto events = s.TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<FinishEvent>(events[0]).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(s.num_live(), 1);
}

TEST(Scheduler, NumericFaultEndsOneSequenceOnly) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 8, 5)).ok());
  ASSERT_TRUE(s.Admit(MakeRequest(2, 8, 5, 300)).ok());
  const StepPlan plan = *s.Next();
  StepResult result = Answer(plan, 5);
  result.sequences[0].token = -1;
  result.sequences[0].numeric_fault = true;
  s.Commit(result);
  EXPECT_EQ(s.stats().numeric_faults, 1);
  EXPECT_EQ(s.stats().running, 1);
  ASSERT_TRUE(s.Admit(MakeRequest(3, 8, 5)).ok());
  EXPECT_EQ(s.Next()->sequences[1].position, 0) << "a faulty page must not be reused";
}

TEST(Scheduler, FailAllEndsEverythingAndForgetsTheCache) {
  Scheduler s(SmallConfig());
  ASSERT_TRUE(s.Admit(MakeRequest(1, 12, 1)).ok());
  s.Commit(Answer(*s.Next(), 5));
  ASSERT_TRUE(s.Admit(MakeRequest(2, 9, 5, 300)).ok());
  ASSERT_TRUE(s.Next().has_value());
  s.FailAll(absl::UnavailableError("rank 1 is gone"));
  EXPECT_TRUE(s.idle());
  EXPECT_EQ(s.stats().pages_free, 16);
  EXPECT_TRUE(s.CheckIntegrity().ok());
}

TEST(Scheduler, PromptLogitsSkipTheCacheAndAreFilledByPosition) {
  SchedulerConfig config = SmallConfig();
  config.max_chunk_tokens = 5;
  Scheduler s(config);
  ASSERT_TRUE(s.Admit(MakeRequest(1, 12, 1)).ok());
  while (!s.idle()) s.Commit(Answer(*s.Next(), 5));
  s.TakeEvents();
  Request request = MakeRequest(2, 12, 1);
  request.sampling.num_prompt_logprobs = 0;
  request.logits_positions = {0, 6, 11};
  ASSERT_TRUE(s.Admit(request).ok());
  while (!s.idle()) {
    const StepPlan plan = *s.Next();
    const SequencePlan& seq = plan.sequences[0];
    StepResult result = Answer(plan, 5);
    for (int32_t t : seq.score_targets) {
      if (t >= 0) result.sequences[0].prompt_logprobs.push_back({{t, -0.5f}, {}});
    }
    for (int32_t row : seq.logits_rows) {
      result.sequences[0].logits.push_back({static_cast<float>(seq.position + row)});
    }
    s.Commit(result);
  }
  const auto events = s.TakeEvents();
  const auto& token = std::get<TokenEvent>(events[0]);
  EXPECT_EQ(token.cached_tokens, 0);
  ASSERT_EQ(token.prompt_logprobs.size(), 11u);
  for (int i = 0; i < 11; ++i) EXPECT_EQ(token.prompt_logprobs[i].token.token, 101 + i);
  EXPECT_EQ(token.prompt_logits, (std::vector<std::vector<float>>{{0.0f}, {6.0f}, {11.0f}}));
}

}  // namespace
}  // namespace millrace
