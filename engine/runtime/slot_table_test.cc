#include "engine/runtime/slot_table.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr PlanLimits kLimits = {.max_num_seqs = 3,
                                .max_num_batched_tokens = 12,
                                .max_model_len = 20,
                                .page_tokens = 4,
                                .num_pages = 10,
                                .vocab_size = 100};

StepPlan OneSequence(int64_t step) {
  StepPlan plan;
  plan.step = step;
  SequencePlan s;
  s.slot = 1;
  s.init = SlotInit();
  s.new_pages = {3, 9};
  s.tokens = {5, 99, 0, 7, 8};
  s.sample = true;
  plan.sequences.push_back(s);
  return plan;
}

StepPlan Decode(int64_t step, int32_t position) {
  StepPlan plan;
  plan.step = step;
  SequencePlan s;
  s.slot = 1;
  s.position = position;
  s.sample = true;
  plan.sequences.push_back(s);
  return plan;
}

TEST(SlotTableTest, KeepsPagesTokensAndSamples) {
  SlotTable slots(kLimits);
  ASSERT_TRUE(slots.Validate(OneSequence(7)).ok());
  StepPlan prompt = OneSequence(7);
  prompt.sequences[0].sample = true;
  slots.Apply(prompt);
  EXPECT_EQ(slots.slot(1).unrecorded, 1);
  EXPECT_EQ(slots.slot(1).pages, (std::vector<int32_t>{3, 9}));
  EXPECT_EQ(slots.slot(1).cached_tokens, 5);
  slots.RecordSample(1, slots.slot(1).sequence, 42);
  EXPECT_EQ(slots.slot(1).unrecorded, 0);
  EXPECT_EQ(slots.slot(1).last_token, 42);
  EXPECT_EQ(slots.slot(1).output_tokens, 1);
  ASSERT_TRUE(slots.Validate(Decode(8, 5)).ok()) << slots.Validate(Decode(8, 5));
  slots.Apply(Decode(8, 5));
  EXPECT_EQ(slots.slot(1).cached_tokens, 6);
  // A new sequence forgets the old one.
  StepPlan other = OneSequence(9);
  other.sequences[0].sample = false;
  slots.Apply(other);
  EXPECT_EQ(slots.slot(1).cached_tokens, 5);
  EXPECT_FALSE(slots.slot(1).has_sample);
}

// A step may be launched before the one ahead of it is collected.
TEST(SlotTableTest, ASampleThatComesTooLateIsForgotten) {
  SlotTable slots(kLimits);
  StepPlan plan = OneSequence(1);
  plan.sequences[0].sample = true;
  slots.Apply(plan);
  const uint32_t first = slots.slot(1).sequence;
  plan.step = 2;
  slots.Apply(plan);
  slots.RecordSample(1, first, 42);
  EXPECT_EQ(slots.slot(1).unrecorded, 1);
  EXPECT_EQ(slots.slot(1).last_token, -1);
  slots.RecordSample(1, slots.slot(1).sequence, 43);
  EXPECT_EQ(slots.slot(1).last_token, 43);
}

TEST(SlotTableTest, CountsHistoryForPenalties) {
  SlotTable slots(kLimits);
  StepPlan plan = OneSequence(1);
  SlotInit& init = *plan.sequences[0].init;
  init.sampling.presence_penalty = 1;
  init.history = {5, 99, 5, 7, 7};
  init.prompt_tokens = 3;
  init.output_tokens = 2;
  plan.sequences[0].sample = true;
  ASSERT_TRUE(slots.Validate(plan).ok());
  slots.Apply(plan);
  slots.RecordSample(1, slots.slot(1).sequence, 5);
  EXPECT_EQ(slots.slot(1).counts.ids(), (std::vector<int32_t>{5, 99, 7}));
  EXPECT_EQ(slots.slot(1).counts.output_counts(), (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(slots.slot(1).output_tokens, 3);
}

TEST(SlotTableTest, APrefixHitStartsPastItsPages) {
  SlotTable slots(kLimits);
  StepPlan plan = OneSequence(1);
  plan.sequences[0].position = 8;
  plan.sequences[0].new_pages = {1, 2, 3, 4};
  ASSERT_TRUE(slots.Validate(plan).ok());
  slots.Apply(plan);
  EXPECT_EQ(slots.slot(1).cached_tokens, 13);
}

using Edit = std::function<void(StepPlan&)>;
struct BadPlan {
  const char* reason;  // part of the message
  Edit edit;
};

SequencePlan& First(StepPlan& p) { return p.sequences[0]; }

const BadPlan kBadFirstPlans[] = {
    {"no sequences", [](StepPlan& p) { p.sequences.clear(); }},
    {"slot 3", [](StepPlan& p) { First(p).slot = 3; }},
    {"slot -1", [](StepPlan& p) { First(p).slot = -1; }},
    {"slot 1 is given twice", [](StepPlan& p) { p.sequences.push_back(First(p)); }},
    {"4 sequences", [](StepPlan& p) { p.sequences.assign(4, First(p)); }},
    {"more than 12 tokens", [](StepPlan& p) { First(p).tokens.assign(13, 1); }},
    {"a first step without tokens", [](StepPlan& p) { First(p).tokens.clear(); }},
    {"no sequence was put", [](StepPlan& p) { First(p).init.reset(); }},
    {"tokens[2] = 100", [](StepPlan& p) { First(p).tokens[2] = 100; }},
    {"tokens[0] = -1", [](StepPlan& p) { First(p).tokens[0] = -1; }},
    {"new_pages[1] = 10", [](StepPlan& p) { First(p).new_pages[1] = 10; }},
    {"new_pages[0] = -1", [](StepPlan& p) { First(p).new_pages[0] = -1; }},
    {"page 3 is given twice", [](StepPlan& p) { First(p).new_pages[1] = 3; }},
    {"6 pages", [](StepPlan& p) { First(p).new_pages = {0, 1, 2, 3, 4, 5}; }},
    {"do not fit into 1 pages", [](StepPlan& p) { First(p).new_pages = {3}; }},
    {"position -1", [](StepPlan& p) { First(p).position = -1; }},
    {"position 2147483647",
     [](StepPlan& p) { First(p).position = std::numeric_limits<int32_t>::max(); }},
    {"position 16", [](StepPlan& p) { First(p).position = 16; }},
    {"position 3 in a first step, want a multiple of 4",
     [](StepPlan& p) { First(p).position = 3; }},
    {"5 score targets", [](StepPlan& p) { First(p).score_targets.assign(5, 1); }},
    {"0 score targets", [](StepPlan& p) { First(p).prompt_logprobs = true; }},
    {"score_targets[4] = 100",
     [](StepPlan& p) {
       First(p).prompt_logprobs = true;
       First(p).score_targets = {1, 2, 3, 4, 100};
     }},
    {"logits_rows[1] = 5",
     [](StepPlan& p) {
       First(p).logits_rows = {0, 5};
     }},
    {"do not ascend",
     [](StepPlan& p) {
       First(p).logits_rows = {2, 2};
     }},
    {"a history of 21", [](StepPlan& p) { First(p).init->history.assign(21, 1); }},
    {"history[0] = 100", [](StepPlan& p) { First(p).init->history = {100}; }},
    {"prompt_tokens = 3",
     [](StepPlan& p) {
       First(p).init->history = {1, 2};
       First(p).init->prompt_tokens = 3;
     }},
    {"output_tokens = -1", [](StepPlan& p) { First(p).init->output_tokens = -1; }},
    {"temperature", [](StepPlan& p) { First(p).init->sampling.temperature = -1; }},
    {"temperature",
     [](StepPlan& p) {
       First(p).init->sampling.temperature = std::numeric_limits<float>::quiet_NaN();
     }},
    {"top_k", [](StepPlan& p) { First(p).init->sampling.top_k = -2; }},
    {"top_p", [](StepPlan& p) { First(p).init->sampling.top_p = 0; }},
    {"min_p", [](StepPlan& p) { First(p).init->sampling.min_p = 1.5f; }},
    {"repetition_penalty", [](StepPlan& p) { First(p).init->sampling.repetition_penalty = 0; }},
    {"presence_penalty",
     [](StepPlan& p) {
       First(p).init->sampling.presence_penalty = std::numeric_limits<float>::infinity();
     }},
    {"21 logprobs", [](StepPlan& p) { First(p).init->sampling.num_logprobs = 21; }},
    {"21 logprobs", [](StepPlan& p) { First(p).init->sampling.num_prompt_logprobs = 21; }},
    {"logit_bias[100]",
     [](StepPlan& p) {
       First(p).init->sampling.logit_bias = {{100, 1.0f}};
     }},
    {"a step >= 0", [](StepPlan& p) { p.step = -1; }},
};

TEST(SlotTableTest, RefusesEveryBadFirstPlan) {
  const SlotTable slots(kLimits);
  for (const BadPlan& bad : kBadFirstPlans) {
    StepPlan plan = OneSequence(1);
    bad.edit(plan);
    const absl::Status status = slots.Validate(plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.reason;
    EXPECT_NE(std::string(status.message()).find(bad.reason), std::string::npos)
        << bad.reason << ": " << status;
  }
}

const BadPlan kBadLaterPlans[] = {
    {"follows step 1", [](StepPlan& p) { p.step = 3; }},
    {"position 6, but 5 tokens are cached", [](StepPlan& p) { First(p).position = 6; }},
    {"none was sampled", [](StepPlan&) {}},
    {"page 9 is given twice",
     [](StepPlan& p) {
       First(p).tokens = {1};
       First(p).new_pages = {9};
     }},
    {"do not fit into 2 pages",
     [](StepPlan& p) {
       First(p).tokens = {1, 2, 3, 4};
     }},
    {"no sequence was put", [](StepPlan& p) { First(p).slot = 0; }},
};

TEST(SlotTableTest, RefusesEveryBadLaterPlan) {
  SlotTable slots(kLimits);
  StepPlan prompt = OneSequence(1);
  prompt.sequences[0].sample = false;
  slots.Apply(prompt);
  for (const BadPlan& bad : kBadLaterPlans) {
    StepPlan plan = Decode(2, 5);
    bad.edit(plan);
    const absl::Status status = slots.Validate(plan);
    EXPECT_NE(std::string(status.message()).find(bad.reason), std::string::npos)
        << bad.reason << ": " << status;
  }
}

}  // namespace
}  // namespace millrace
