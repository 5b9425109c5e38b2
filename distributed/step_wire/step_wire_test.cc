#include "distributed/step_wire/step_wire.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace millrace {
namespace {

const StepLimits kLimits = {.max_num_seqs = 8,
                            .max_num_batched_tokens = 64,
                            .max_model_len = 128,
                            .num_pages = 32,
                            .vocab_size = 1000};

StepPlan FullPlan() {
  SequencePlan first;
  first.slot = 7;
  first.init = SlotInit{};
  first.init->sampling = {.temperature = 0.1f,
                          .top_k = 17,
                          .top_p = 0.9f,
                          .min_p = std::numeric_limits<float>::denorm_min(),
                          .repetition_penalty = 1.1f,
                          .frequency_penalty = -0.5f,
                          .presence_penalty = 0.25f,
                          .seed = 0xfedcba9876543210u,
                          .max_tokens = 100,
                          .min_tokens = 3,
                          .stop_token_ids = {0, 999},
                          .logit_bias = {{5, -1.5f}, {999, std::numeric_limits<float>::max()}},
                          .num_logprobs = 0,
                          .num_prompt_logprobs = 20};
  first.init->history = {1, 2, 999};
  first.init->prompt_tokens = 2;
  first.init->output_tokens = 1;
  first.new_pages = {31, 0};
  first.position = 32;
  first.tokens = {3, 0, 999};
  first.sample = true;
  first.prompt_logprobs = true;
  first.score_targets = {0, -1, 999};
  first.logits_rows = {0, 2};
  SequencePlan decode;
  decode.slot = 0;
  decode.position = 127;
  return {.step = int64_t{1} << 40, .sequences = {first, decode}};
}

void ExpectSame(const SamplingParams& a, const SamplingParams& b) {
  EXPECT_EQ(std::bit_cast<uint32_t>(a.temperature), std::bit_cast<uint32_t>(b.temperature));
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(std::bit_cast<uint32_t>(a.min_p), std::bit_cast<uint32_t>(b.min_p));
  EXPECT_EQ(a.repetition_penalty, b.repetition_penalty);
  EXPECT_EQ(a.frequency_penalty, b.frequency_penalty);
  EXPECT_EQ(a.presence_penalty, b.presence_penalty);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.max_tokens, b.max_tokens);
  EXPECT_EQ(a.min_tokens, b.min_tokens);
  EXPECT_EQ(a.stop_token_ids, b.stop_token_ids);
  EXPECT_EQ(a.logit_bias, b.logit_bias);
  EXPECT_EQ(a.num_logprobs, b.num_logprobs);
  EXPECT_EQ(a.num_prompt_logprobs, b.num_prompt_logprobs);
}

TEST(StepWireTest, PlanRoundTrip) {
  const StepPlan plan = FullPlan();
  worker::StepPlan proto;
  ASSERT_TRUE(proto.ParseFromString(ToProto(plan).SerializeAsString()));
  const StepPlan back = FromProto(proto, kLimits).value();
  EXPECT_EQ(back.step, plan.step);
  ASSERT_EQ(back.sequences.size(), plan.sequences.size());
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const SequencePlan& a = plan.sequences[i];
    const SequencePlan& b = back.sequences[i];
    EXPECT_EQ(a.slot, b.slot);
    ASSERT_EQ(a.init.has_value(), b.init.has_value());
    if (a.init.has_value()) {
      ExpectSame(a.init->sampling, b.init->sampling);
      EXPECT_EQ(a.init->history, b.init->history);
      EXPECT_EQ(a.init->prompt_tokens, b.init->prompt_tokens);
      EXPECT_EQ(a.init->output_tokens, b.init->output_tokens);
    }
    EXPECT_EQ(a.new_pages, b.new_pages);
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.sample, b.sample);
    EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
    EXPECT_EQ(a.score_targets, b.score_targets);
    EXPECT_EQ(a.logits_rows, b.logits_rows);
  }
}

TEST(StepWireTest, ResultRoundTripIsBitExact) {
  const float nan = std::bit_cast<float>(0x7fc12345u);
  SequenceResult first;
  first.slot = 3;
  first.token = 999;
  first.logprobs = ScoredToken{{999, -0.0f}, {{1, -1.25f}, {2, nan}}};
  first.prompt_logprobs = {{{4, -3.5f}, {}}, {{0, -std::numeric_limits<float>::infinity()}, {}}};
  first.logits = {std::vector<float>(1000, 0.1f), std::vector<float>(1000, nan)};
  SequenceResult second;
  second.slot = 0;
  second.numeric_fault = true;
  const StepResult result = {.step = 9, .sequences = {first, second}};
  worker::StepDone proto;
  ASSERT_TRUE(proto.ParseFromString(ToProto(result).SerializeAsString()));
  const StepResult back = FromProto(proto, kLimits).value();
  ASSERT_EQ(back.sequences.size(), 2u);
  const SequenceResult& got = back.sequences[0];
  EXPECT_EQ(back.step, 9);
  EXPECT_EQ(got.slot, 3);
  EXPECT_EQ(got.token, 999);
  const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
  EXPECT_EQ(bits(got.logprobs->token.logprob), bits(-0.0f));
  ASSERT_EQ(got.logprobs->top.size(), 2u);
  EXPECT_EQ(got.logprobs->top[1].token, 2);
  EXPECT_EQ(bits(got.logprobs->top[1].logprob), bits(nan));
  ASSERT_EQ(got.prompt_logprobs.size(), 2u);
  EXPECT_EQ(got.prompt_logprobs[1].token.logprob, -std::numeric_limits<float>::infinity());
  ASSERT_EQ(got.logits.size(), 2u);
  EXPECT_EQ(got.logits[0], first.logits[0]);
  EXPECT_EQ(bits(got.logits[1][999]), bits(nan));
  EXPECT_EQ(back.sequences[1].token, -1);
  EXPECT_TRUE(back.sequences[1].numeric_fault);
  EXPECT_FALSE(back.sequences[1].logprobs.has_value());
}

struct Hostile {
  const char* field;
  std::function<void(worker::StepPlan*)> change;
};

template <typename Repeated>
void AddMany(Repeated* list, int count) {
  for (int i = 0; i < count; ++i) list->Add(0);
}

TEST(StepWireTest, HostilePlansAreRefusedByName) {
  using Plan = worker::StepPlan;
  const auto sequence = [](Plan* p) { return p->mutable_sequences(0); };
  const auto sampling = [](Plan* p) {
    return p->mutable_sequences(0)->mutable_init()->mutable_sampling();
  };
  const std::vector<Hostile> cases = {
      {"step =", [](Plan* p) { p->set_step(0); }},
      {"sequences =",
       [](Plan* p) {
         for (int i = 0; i < 8; ++i) p->add_sequences();
       }},
      {"slot", [&](Plan* p) { sequence(p)->set_slot(8); }},
      {"slot", [&](Plan* p) { sequence(p)->set_slot(-1); }},
      {"new_pages", [&](Plan* p) { sequence(p)->add_new_pages(32); }},
      {"new_pages", [&](Plan* p) { sequence(p)->add_new_pages(-1); }},
      {"new_pages", [&](Plan* p) { AddMany(sequence(p)->mutable_new_pages(), 40); }},
      {"position =", [&](Plan* p) { sequence(p)->set_position(-1); }},
      {"position =", [&](Plan* p) { sequence(p)->set_position(INT32_MAX); }},
      {"position + tokens", [&](Plan* p) { sequence(p)->set_position(126); }},
      {"tokens of the step", [&](Plan* p) { AddMany(sequence(p)->mutable_tokens(), 64); }},
      {"tokens", [&](Plan* p) { sequence(p)->set_tokens(0, 1000); }},
      {"tokens", [&](Plan* p) { sequence(p)->set_tokens(0, -1); }},
      {"score_targets", [&](Plan* p) { sequence(p)->add_score_targets(1); }},
      {"score_targets", [&](Plan* p) { sequence(p)->set_score_targets(0, -2); }},
      {"score_targets", [&](Plan* p) { sequence(p)->clear_score_targets(); }},
      {"logits_rows", [&](Plan* p) { sequence(p)->set_logits_rows(0, 3); }},
      {"logits_rows", [&](Plan* p) { AddMany(sequence(p)->mutable_logits_rows(), 2); }},
      {"history", [&](Plan* p) { sequence(p)->mutable_init()->set_history(0, 1000); }},
      {"history", [&](Plan* p) { AddMany(sequence(p)->mutable_init()->mutable_history(), 200); }},
      {"prompt_tokens", [&](Plan* p) { sequence(p)->mutable_init()->set_prompt_tokens(4); }},
      {"output_tokens", [&](Plan* p) { sequence(p)->mutable_init()->set_output_tokens(-1); }},
      {"not finite", [&](Plan* p) { sampling(p)->set_temperature(std::nanf("")); }},
      {"not finite", [&](Plan* p) { sampling(p)->set_min_p(INFINITY); }},
      {"top_k", [&](Plan* p) { sampling(p)->set_top_k(-1); }},
      {"max_tokens", [&](Plan* p) { sampling(p)->set_max_tokens(0); }},
      {"min_tokens", [&](Plan* p) { sampling(p)->set_min_tokens(101); }},
      {"stop_token_ids", [&](Plan* p) { sampling(p)->set_stop_token_ids(0, 1000); }},
      {"stop_token_ids", [&](Plan* p) { AddMany(sampling(p)->mutable_stop_token_ids(), 70000); }},
      {"logit_bias", [&](Plan* p) { sampling(p)->mutable_logit_bias(0)->set_token(-3); }},
      {"num_logprobs", [&](Plan* p) { sampling(p)->set_num_logprobs(21); }},
      {"num_prompt_logprobs", [&](Plan* p) { sampling(p)->set_num_prompt_logprobs(-2); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    worker::StepPlan proto = ToProto(FullPlan());
    cases[i].change(&proto);
    const auto plan = FromProto(proto, kLimits);
    ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
        << "case " << i << ": " << cases[i].field;
    EXPECT_NE(plan.status().message().find(cases[i].field), std::string::npos)
        << "case " << i << ": " << plan.status();
  }
}

TEST(StepWireTest, HostileResultsAreRefusedByName) {
  using Done = worker::StepDone;
  const std::vector<std::pair<const char*, std::function<void(Done*)>>> cases = {
      {"step =", [](Done* d) { d->set_step(-1); }},
      {"sequences",
       [](Done* d) {
         for (int i = 0; i < 9; ++i) d->add_sequences();
       }},
      {"slot", [](Done* d) { d->mutable_sequences(0)->set_slot(8); }},
      {"token", [](Done* d) { d->mutable_sequences(0)->set_token(1000); }},
      {"token", [](Done* d) { d->mutable_sequences(0)->set_token(-2); }},
      {"logprob token",
       [](Done* d) {
         d->mutable_sequences(0)->mutable_logprobs()->mutable_token()->set_token(1000);
       }},
      {"top logprobs",
       [](Done* d) {
         for (int i = 0; i < 21; ++i) d->mutable_sequences(0)->mutable_logprobs()->add_top();
       }},
      {"prompt_logprobs",
       [](Done* d) {
         for (int i = 0; i < 65; ++i) d->mutable_sequences(0)->add_prompt_logprobs();
       }},
      {"logits",
       [](Done* d) {
         for (int i = 0; i < 65; ++i) d->mutable_sequences(0)->add_logits();
       }},
      {"logits row", [](Done* d) { d->mutable_sequences(0)->add_logits()->add_values(1.0f); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    worker::StepDone proto = ToProto(StepResult{.step = 1, .sequences = {SequenceResult{}}});
    ASSERT_TRUE(FromProto(proto, kLimits).ok());
    cases[i].second(&proto);
    const auto result = FromProto(proto, kLimits);
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << "case " << i;
    EXPECT_NE(result.status().message().find(cases[i].first), std::string::npos)
        << "case " << i << ": " << result.status();
  }
}

// Whatever bytes come, reading ends with a plan or a refusal.
TEST(StepWireTest, MutatedBytes) {
  std::mt19937 random(7);
  const std::string good = ToProto(FullPlan()).SerializeAsString();
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint32_t k = 0; k <= random() % 4; ++k) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    worker::StepPlan proto;
    if (!proto.ParseFromString(bytes)) continue;
    ++parsed;
    const auto plan = FromProto(proto, kLimits);
    if (plan.ok()) {
      EXPECT_LE(plan->num_tokens(), kLimits.max_num_batched_tokens);
    }
  }
  EXPECT_GT(parsed, 1000);
}

TEST(StepWireTest, RunnerConfigRoundTripAndRefusals) {
  const RunnerConfig config = {.model_dir = "/models/x",
                               .load_format = LoadFormat::kDummy,
                               .dtype = DType::kF32,
                               .kv_dtype = DType::kU8,
                               .numerics = Numerics::kServing,
                               .quantize = true,
                               .expert_parallel = true,
                               .data_parallel_size = 3,
                               .page_tokens = 16,
                               .max_num_seqs = 3,
                               .max_num_batched_tokens = 99,
                               .max_model_len = 4096,
                               .fit_model_len = true,
                               .seed = ~uint64_t{0},
                               .enforce_eager = true,
                               .cuda_graph_sizes = {1, 3}};
  const RunnerConfig back = FromProto(ToProto(config)).value();
  EXPECT_EQ(back.model_dir, config.model_dir);
  EXPECT_EQ(back.load_format, config.load_format);
  EXPECT_EQ(back.dtype, config.dtype);
  EXPECT_EQ(back.kv_dtype, config.kv_dtype);
  EXPECT_EQ(back.numerics, config.numerics);
  EXPECT_TRUE(back.quantize);
  EXPECT_TRUE(back.expert_parallel);
  EXPECT_EQ(back.data_parallel_size, 3);
  EXPECT_EQ(back.page_tokens, config.page_tokens);
  EXPECT_EQ(back.max_num_seqs, config.max_num_seqs);
  EXPECT_EQ(back.max_num_batched_tokens, config.max_num_batched_tokens);
  EXPECT_EQ(back.max_model_len, config.max_model_len);
  EXPECT_TRUE(back.fit_model_len);
  EXPECT_EQ(back.seed, config.seed);
  EXPECT_TRUE(back.enforce_eager);
  EXPECT_EQ(back.cuda_graph_sizes, config.cuda_graph_sizes);
  worker::RunnerConfig bad = ToProto(config);
  bad.set_dtype(77);
  EXPECT_FALSE(FromProto(bad).ok());
  bad = ToProto(config);
  bad.set_max_num_seqs(0);
  EXPECT_FALSE(FromProto(bad).ok());
  bad = ToProto(config);
  bad.add_cuda_graph_sizes(0);
  EXPECT_FALSE(FromProto(bad).ok());
  bad = ToProto(config);
  for (int i = 0; i < 2000; ++i) bad.add_cuda_graph_sizes(1);
  EXPECT_FALSE(FromProto(bad).ok());
  worker::Loaded memory = ToProto(RankMemory{1, 2, 3, 4, 5});
  EXPECT_EQ(FromProto(memory)->skipped_tensors, 5);
  EXPECT_EQ(FromProto(memory)->available_bytes, 4);
  memory.set_bytes_per_page(0);
  EXPECT_FALSE(FromProto(memory).ok());
}

}  // namespace
}  // namespace millrace
