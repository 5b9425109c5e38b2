// Random schedules against FakeModel, whose answers depend on every id a sequence can see through
// its page table: one wrong, stale or foreign page, one token too many or too few, and the output
// differs from what the prompt alone determines.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/scheduler/scheduler.h"
#include "engine/testing/fake_executor.h"

namespace millrace {
namespace {

constexpr int32_t kVocab = 50;

struct Expected {
  Request request;
  std::vector<int32_t> output;  // as received
  bool finished = false;
  bool cancelled = false;
};

class RandomSchedule {
 public:
  explicit RandomSchedule(uint64_t seed) : rng_(seed) {
    config_.page_tokens = Pick(1, 5);
    config_.max_model_len = Pick(8, 40);
    const int32_t one = (config_.max_model_len + config_.page_tokens - 1) / config_.page_tokens;
    config_.num_pages = one + Pick(0, 2 * one);
    config_.max_num_seqs = Pick(1, 6);
    config_.max_num_batched_tokens = Pick(1, 30);
    config_.max_chunk_tokens = Pick(0, 1) == 0 ? 0 : Pick(1, 8);
    config_.enable_prefix_caching = Pick(0, 4) != 0;
    overlap_ = Pick(0, 3) != 0;
    model_.emplace(FakeModelOptions{.num_pages = config_.num_pages,
                                    .page_tokens = config_.page_tokens,
                                    .max_num_seqs = config_.max_num_seqs,
                                    .max_num_batched_tokens = config_.max_num_batched_tokens,
                                    .vocab = kVocab});
    scheduler_.emplace(config_);
  }

  void Run() {
    ASSERT_TRUE(config_.Validate().ok());
    const int32_t requests = Pick(1, 12);
    int32_t idle_rounds = 0;
    while ((static_cast<int32_t>(expected_.size()) < requests || !scheduler_->idle())) {
      if (static_cast<int32_t>(expected_.size()) < requests && Pick(0, 2) == 0) Arrive();
      if (!expected_.empty() && Pick(0, 15) == 0) Cancel();
      if (Pick(0, 40) == 0) scheduler_->FlushPrefixCache();
      const bool moved = Step();
      ReadEvents();
      ASSERT_TRUE(scheduler_->CheckIntegrity().ok()) << scheduler_->CheckIntegrity();
      idle_rounds = moved ? 0 : idle_rounds + 1;
      ASSERT_LT(idle_rounds, 200) << "the schedule is stuck";
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const auto& [id, e] : expected_) EXPECT_TRUE(e.finished) << "sequence " << id;
    const SchedulerStats stats = scheduler_->stats();
    EXPECT_EQ(stats.pages_used, 0);
    preemptions += stats.preemptions;
    prefix_hits += stats.prefix_hits;
  }

  int64_t preemptions = 0;
  int64_t prefix_hits = 0;

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(rng_);
  }

  void Arrive() {
    Request request{.id = expected_.size() + 1};
    const int32_t size = Pick(1, config_.max_model_len - 1);
    // Few different prompts, so that prefixes are shared.
    const int32_t family = Pick(0, 2);
    for (int32_t i = 0; i < size; ++i) request.prompt.push_back((family * 7 + i) % kVocab);
    if (Pick(0, 2) == 0) request.prompt.back() = Pick(0, kVocab - 1);
    request.sampling.max_tokens = Pick(1, config_.max_model_len - size);
    if (Pick(0, 1) == 0) request.sampling.stop_token_ids = {Pick(0, kVocab - 1), 3};
    request.cache_salt = Pick(0, 5) == 0 ? "salt" : "";
    if (Pick(0, 6) == 0) request.sampling.num_prompt_logprobs = 0;
    ASSERT_TRUE(scheduler_->Admit(request).ok());
    expected_[request.id].request = request;
  }

  void Cancel() {
    const SequenceId id = static_cast<SequenceId>(Pick(1, static_cast<int32_t>(expected_.size())));
    if (!expected_[id].finished) expected_[id].cancelled = true;
    scheduler_->Finish(id, FinishReason::kAbort);
  }

  // Launches ahead as the engine does; FakeModel runs a plan when it is collected.
  bool Step() {
    bool moved = false;
    const size_t depth = overlap_ ? 2 : 1;
    while (in_flight_.size() < depth) {
      std::optional<StepPlan> plan = scheduler_->Next();
      if (!plan.has_value()) break;
      in_flight_.push_back(*std::move(plan));
      moved = true;
      if (Pick(0, 2) == 0) break;
    }
    if (in_flight_.empty()) return moved;
    absl::StatusOr<StepResult> result = model_->Step(in_flight_.front());
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return false;
    const StepPlan& plan = in_flight_.front();
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      for (int32_t target : plan.sequences[i].score_targets) {
        if (target >= 0) result->sequences[i].prompt_logprobs.push_back({{target, -1.0f}, {}});
      }
    }
    in_flight_.erase(in_flight_.begin());
    scheduler_->Commit(*result);
    return true;
  }

  void ReadEvents() {
    for (const SchedulerEvent& event : scheduler_->TakeEvents()) {
      if (const auto* token = std::get_if<TokenEvent>(&event)) {
        OnToken(*token);
      } else {
        OnFinish(std::get<FinishEvent>(event));
      }
    }
  }

  void OnToken(const TokenEvent& event) {
    Expected& e = expected_[event.id];
    EXPECT_FALSE(e.finished) << "a token after the end";
    if (e.output.empty() && e.request.sampling.num_prompt_logprobs >= 0) {
      ASSERT_EQ(event.prompt_logprobs.size() + 1, e.request.prompt.size());
      for (size_t p = 0; p < event.prompt_logprobs.size(); ++p) {
        EXPECT_EQ(event.prompt_logprobs[p].token.token, e.request.prompt[p + 1]);
      }
    }
    std::vector<int32_t> ids = e.request.prompt;
    ids.insert(ids.end(), e.output.begin(), e.output.end());
    EXPECT_EQ(event.token, FakeNextToken(ids, kVocab)) << "sequence " << event.id;
    e.output.push_back(event.token);
  }

  void OnFinish(const FinishEvent& event) {
    Expected& e = expected_[event.id];
    EXPECT_FALSE(e.finished) << "ended twice";
    e.finished = true;
    if (e.cancelled) return;
    const auto& stops = e.request.sampling.stop_token_ids;
    const auto stop =
        std::find_first_of(e.output.begin(), e.output.end(), stops.begin(), stops.end());
    if (stop != e.output.end()) {
      EXPECT_EQ(event.reason, FinishReason::kStop);
      EXPECT_EQ(stop + 1, e.output.end()) << "tokens after the stop id";
      EXPECT_EQ(event.matched_token, *stop);
    } else {
      EXPECT_EQ(event.reason, FinishReason::kLength);
      EXPECT_EQ(static_cast<int32_t>(e.output.size()), e.request.sampling.max_tokens);
    }
  }

  std::mt19937_64 rng_;
  SchedulerConfig config_;
  bool overlap_ = true;
  std::optional<FakeModel> model_;
  std::optional<Scheduler> scheduler_;
  std::vector<StepPlan> in_flight_;
  std::map<SequenceId, Expected> expected_;
};

TEST(SchedulerProperty, HundredThousandRandomSchedules) {
  int64_t preemptions = 0;
  int64_t prefix_hits = 0;
  for (uint64_t seed = 0; seed < 100000; ++seed) {
    SCOPED_TRACE(seed);
    RandomSchedule schedule(seed);
    schedule.Run();
    if (HasFailure()) return;
    preemptions += schedule.preemptions;
    prefix_hits += schedule.prefix_hits;
  }
  // The schedules are worth nothing unless they go where it hurts.
  EXPECT_GT(preemptions, 10000);
  EXPECT_GT(prefix_hits, 100000);
}

}  // namespace
}  // namespace millrace
