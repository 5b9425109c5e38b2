// One model, computed in every way the engine knows: the answers must be the same, and right.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/local_executor.h"
#include "gtest/gtest.h"
#include "tests/parity/cache_codes.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

constexpr double kTolerance = 1e-4;  // of logits with a spread of about 10, f32 against double

// Logits of every prompt position and the greedy continuation, by formula and by engine.
void ExpectRight(const TinyLlama& model, Engine& engine) {
  std::vector<Request> requests;
  for (const int32_t length : {1, 5, 33}) {
    requests.push_back(Greedy(Prompt(length, length, model.shape().vocab), 8, true));
  }
  const std::vector<Output> outputs = RunAll(engine, requests);
  for (size_t i = 0; i < outputs.size(); ++i) {
    ASSERT_TRUE(outputs[i].status.ok()) << outputs[i].status;
    EXPECT_LT(LargestError(model.Logits(requests[i].prompt), outputs[i].logits), kTolerance) << i;
    double margin = 0;
    const std::vector<int32_t> want = model.Greedy(requests[i].prompt, 8, &margin);
    ASSERT_GT(margin, 10 * kTolerance) << "choose another seed: a near-tie says nothing";
    EXPECT_EQ(outputs[i].tokens, want) << i;
  }
}

struct NamedShape {
  const char* name;
  TinyLlamaShape shape;
};

const NamedShape kShapes[] = {
    {"gqa", {}},
    {"mha_tied_biased",
     {.hidden = 40,
      .heads = 5,
      .kv_heads = 5,
      .tied = true,
      .attention_bias = true,
      .mlp_bias = true}},
    {"mqa_linear_rope",
     {.layers = 3, .heads = 4, .kv_heads = 1, .head_dim = 16, .rope_factor = 2.5}},
};

TEST(ParityTest, AgreesWithTheFormulas) {
  for (const NamedShape& s : kShapes) {
    SCOPED_TRACE(s.name);
    const TinyLlama model(s.shape, 1);
    const std::unique_ptr<Engine> engine = Start(Folder(model, s.name), {});
    ASSERT_NE(engine, nullptr);
    ExpectRight(model, *engine);
  }
}

TEST(ParityTest, AnyNumberOfRanks) {
  for (const NamedShape& s : kShapes) {
    for (const int32_t ranks : {2, 3, 4, 5, 6}) {
      const bool fits = ranks <= s.shape.heads;
      if (!fits) continue;
      SCOPED_TRACE(std::string(s.name) + " on " + std::to_string(ranks));
      const TinyLlama model(s.shape, 1);
      const std::unique_ptr<Engine> engine = Start(Folder(model, s.name), {.ranks = ranks});
      ASSERT_NE(engine, nullptr);
      ExpectRight(model, *engine);
    }
  }
}

TEST(ParityTest, AnyChunks) {
  const TinyLlama model({}, 1);
  const std::string dir = Folder(model, "chunks");
  for (const int32_t chunk : {1, 3, 4, 7, 32}) {
    SCOPED_TRACE(chunk);
    const std::unique_ptr<Engine> engine = Start(dir, {.ranks = 1 + chunk % 2, .chunk = chunk});
    ASSERT_NE(engine, nullptr);
    ExpectRight(model, *engine);
  }
}

TEST(ParityTest, BFloat16StaysNear) {
  const TinyLlama model({}, 1);
  const std::unique_ptr<Engine> engine = Start(Folder(model, "bf16"), {.dtype = DType::kBF16});
  ASSERT_NE(engine, nullptr);
  const Request request = Greedy(Prompt(33, 33), 1, true);
  const std::vector<Output> outputs = RunAll(*engine, {request});
  // Cache rows are rounded to 8 bits of mantissa.
  const double error = LargestError(model.Logits(request.prompt), outputs[0].logits);
  EXPECT_LT(error, 0.2);
  EXPECT_GT(error, kTolerance) << "was the cache bf16 at all?";
}

// f32 puts a code now and then on the other side of a tie, which costs 0.01 (without the rounding
// in the formula it would be more than 0.05).
constexpr double kFp8Tolerance = 0.02;

TEST(ParityTest, AnFp8CacheHoldsRoundedKeysAndValues) {
  for (const NamedShape& s : kShapes) {
    SCOPED_TRACE(s.name);
    TinyLlama model(s.shape, 1);
    const std::unique_ptr<Engine> engine =
        Start(Folder(model, std::string("fp8_") + s.name), {.kv_dtype = DType::kU8});
    ASSERT_NE(engine, nullptr);
    const Request request = Greedy(Prompt(33, 33), 1, true);
    const std::vector<Output> outputs = RunAll(*engine, {request});
    ASSERT_TRUE(outputs[0].status.ok()) << outputs[0].status;
    EXPECT_GT(LargestError(model.Logits(request.prompt), outputs[0].logits), 0.05) << "was it FP8?";
    model.round_cache = InCodes();
    EXPECT_LT(LargestError(model.Logits(request.prompt), outputs[0].logits), kFp8Tolerance);
  }
}

// Sums that differ in their last bits may make the next code of a key or value, so that any two
// ways to compute differ more than in f32; not more than a few codes do.
TEST(ParityTest, AnFp8CacheIsTheSameInAnyWay) {
  const TinyLlama model({}, 1);
  const std::string dir = Folder(model, "fp8_ways");
  const Request request = Greedy(Prompt(33, 33), 8, true);
  std::vector<Output> outputs;
  for (const EngineSetup& setup :
       {EngineSetup{}, EngineSetup{.ranks = 2}, EngineSetup{.ranks = 3}, EngineSetup{.chunk = 1},
        EngineSetup{.chunk = 7}, EngineSetup{.ranks = 2, .chunk = 4}}) {
    EngineSetup fp8 = setup;
    fp8.kv_dtype = DType::kU8;
    const std::unique_ptr<Engine> engine = Start(dir, fp8);
    ASSERT_NE(engine, nullptr);
    outputs.push_back(RunAll(*engine, {request})[0]);
    ASSERT_TRUE(outputs.back().status.ok()) << outputs.back().status;
    EXPECT_EQ(outputs.back().tokens, outputs[0].tokens);
    std::vector<std::vector<double>> first;
    for (const auto& row : outputs[0].logits) first.emplace_back(row.begin(), row.end());
    EXPECT_LT(LargestError(first, outputs.back().logits), 0.2);
  }
}

TEST(ParityTest, AnFp8CacheKeepsPrefixesAndSequences) {
  const TinyLlama model({}, 4);
  const std::unique_ptr<Engine> engine = Start(
      Folder(model, "fp8_cached"), {.prefix_cache = true, .pages = 40, .kv_dtype = DType::kU8});
  ASSERT_NE(engine, nullptr);
  const std::vector<Request> requests = {Greedy(Prompt(33, 5), 10, false),
                                         Sampled(Prompt(40, 6), 10, 2)};
  const std::vector<Output> first = RunAll(*engine, requests);
  const std::vector<Output> again = RunAll(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_GE(again[i].cached_tokens, 32);
    EXPECT_EQ(first[i].tokens, again[i].tokens);
  }
}

// Each head of keys and of values has one of its own.
TEST(ParityTest, ScalesOfAnFp8CacheComeFromTheCheckpoint) {
  const Request request = Greedy(Prompt(33, 33), 1, true);
  for (const float unit : {0.075f, 0x1p-13f}) {  // the second saturates at 0.05 to 1.75
    TinyLlama model({}, 1);
    const HeadScales scales = UnlikeScales(model.shape(), unit);
    for (const auto& [name, tensor] : ScaleTensors(scales)) model.Set(name, tensor);
    const std::string dir = Folder(model, "fp8_scaled");
    model.round_cache = InCodes(scales);
    const std::vector<std::vector<double>> want = model.Logits(request.prompt);
    for (const int32_t ranks : {1, 2, 3}) {  // of three kv heads
      const std::unique_ptr<Engine> engine = Start(dir, {.ranks = ranks, .kv_dtype = DType::kU8});
      ASSERT_NE(engine, nullptr);
      EXPECT_LT(LargestError(want, RunAll(*engine, {request})[0].logits), kFp8Tolerance)
          << unit << ", ranks " << ranks;
    }
  }
}

// A model that has them is served with any cache.
TEST(ParityTest, ScalesOfAnotherCacheAreLeftAlone) {
  TinyLlama model({}, 1);
  model.Add("model.layers.1.self_attn.k_scale", {}, 1);
  const std::string dir = Folder(model, "fp8_unused");
  const std::unique_ptr<Engine> engine = Start(dir, {});
  ASSERT_NE(engine, nullptr);
  ExpectRight(model, *engine);
}

TEST(ParityTest, ABatchChangesNoBit) {
  const TinyLlama model({}, 3);
  const std::unique_ptr<Engine> engine = Start(Folder(model, "batch"), {});
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  // Few enough tokens for one step: a prompt cut in two may round differently.
  for (int32_t i = 0; i < 8; ++i) {
    requests.push_back(i % 2 == 0
                           ? Greedy(Prompt(3 + 3 * i, i), 20, true)
                           : Sampled(Prompt(2 + 2 * i, i), 20, static_cast<uint64_t>(i / 2)));
  }
  const std::vector<Output> together = RunAll(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<Output> alone = RunAll(*engine, {requests[i]});
    ASSERT_TRUE(together[i].status.ok()) << together[i].status;
    EXPECT_EQ(together[i].tokens, alone[0].tokens) << i;
    EXPECT_EQ(together[i].logits, alone[0].logits) << i;
    ASSERT_EQ(together[i].scored.size(), alone[0].scored.size());
    for (size_t t = 0; t < alone[0].scored.size(); ++t) {
      EXPECT_EQ(together[i].scored[t].token.logprob, alone[0].scored[t].token.logprob);
    }
  }
}

TEST(ParityTest, CachedPrefixesChangeNoToken) {
  const TinyLlama model({}, 4);
  for (const int32_t ranks : {1, 2}) {
    const std::unique_ptr<Engine> engine =
        Start(Folder(model, "cached"), {.ranks = ranks, .prefix_cache = true});
    ASSERT_NE(engine, nullptr);
    const std::vector<Request> requests = {Greedy(Prompt(33, 5), 10, false),
                                           Sampled(Prompt(40, 6), 10, 2)};
    const std::vector<Output> first = RunAll(*engine, requests);
    const std::vector<Output> again = RunAll(*engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(first[i].cached_tokens, 0);
      EXPECT_GE(again[i].cached_tokens, 32);
      EXPECT_EQ(first[i].tokens, again[i].tokens);
    }
    EXPECT_EQ(first[0].tokens, model.Greedy(requests[0].prompt, 10));
  }
}

TEST(ParityTest, PreemptionChangesNoToken) {
  const TinyLlama model({}, 5);
  const std::string dir = Folder(model, "preempted");
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(Sampled(Prompt(9 + i, i), 40, static_cast<uint64_t>(i)));
  }
  const std::unique_ptr<Engine> roomy = Start(dir, {});
  const std::unique_ptr<Engine> tight = Start(dir, {.pages = 22});
  ASSERT_NE(roomy, nullptr);
  ASSERT_NE(tight, nullptr);
  const std::vector<Output> want = RunAll(*roomy, requests);
  const std::vector<Output> got = RunAll(*tight, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(got[i].status.ok()) << got[i].status;
    EXPECT_EQ(got[i].tokens.size(), 40u);
    EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
  }
  EXPECT_EQ(roomy->Stats().scheduler.preemptions, 0);
  EXPECT_GT(tight->Stats().scheduler.preemptions, 0);
}

TEST(ParityTest, PromptLogprobsAreTheLogSoftmax) {
  const TinyLlama model({}, 6);
  for (const int32_t chunk : {0, 5}) {
    const std::unique_ptr<Engine> engine =
        Start(Folder(model, "scores"), {.ranks = 2, .chunk = chunk});
    ASSERT_NE(engine, nullptr);
    Request request = Greedy(Prompt(21, 1), 1, false);
    request.sampling.num_prompt_logprobs = 3;
    const std::vector<Output> outputs = RunAll(*engine, {request});
    ASSERT_EQ(outputs[0].prompt_logprobs.size(), 20u);
    const std::vector<std::vector<double>> logits = model.Logits(request.prompt);
    for (size_t t = 0; t < 20; ++t) {
      double total = 0;
      double best = -INFINITY;
      for (const double v : logits[t]) {
        total += std::exp(v);
        best = std::max(best, v);
      }
      const ScoredToken& scored = outputs[0].prompt_logprobs[t];
      const int32_t next = request.prompt[t + 1];
      EXPECT_EQ(scored.token.token, next);
      const double want = logits[t][static_cast<size_t>(next)] - std::log(total);
      EXPECT_NEAR(scored.token.logprob, want, kTolerance);
      ASSERT_EQ(scored.top.size(), 3u);
      EXPECT_NEAR(scored.top[0].logprob, best - std::log(total), kTolerance);
    }
  }
}

TEST(ParityTest, AFaultStaysWithItsSequence) {
  TinyLlama model({}, 7);
  const std::vector<int32_t> healthy = Prompt(12, 3);
  int32_t poison = 0;
  const std::vector<int32_t> continuation = model.Greedy(healthy, 20);
  const auto used = [&](int32_t id) {
    return std::count(healthy.begin(), healthy.end(), id) +
               std::count(continuation.begin(), continuation.end(), id) >
           0;
  };
  while (used(poison)) ++poison;
  model.PoisonToken(poison);
  for (const int32_t ranks : {1, 2}) {
    const std::unique_ptr<Engine> engine = Start(Folder(model, "fault"), {.ranks = ranks});
    ASSERT_NE(engine, nullptr);
    std::vector<int32_t> sick = Prompt(9, 4);
    sick[4] = poison;
    const std::vector<Request> requests = {Greedy(healthy, 20, false), Greedy(sick, 20, false),
                                           Greedy(healthy, 20, false)};
    const std::vector<Output> outputs = RunAll(*engine, requests);
    EXPECT_EQ(outputs[0].tokens, continuation);
    EXPECT_EQ(outputs[2].tokens, continuation);
    EXPECT_FALSE(outputs[1].status.ok());
    EXPECT_TRUE(outputs[1].tokens.empty());
    // Its pages serve others again.
    EXPECT_EQ(RunAll(*engine, {requests[0]})[0].tokens, continuation);
  }
}

TEST(ParityTest, AModelThatDoesNotFitTheRanksIsRefused) {
  const TinyLlama model({}, 1);
  LocalExecutorConfig config;
  config.runner.model_dir = Folder(model, "refused");
  config.runner.max_model_len = 16;
  config.tensor_parallel_size = 7;
  const absl::Status status = LocalExecutor::Create(config).status();
  EXPECT_NE(std::string(status.message()).find("at most 6 ranks"), std::string::npos) << status;
}

}  // namespace
}  // namespace millrace
