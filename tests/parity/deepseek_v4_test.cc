// One DeepSeek-V4, computed in every way the engine knows: the answers must be the same, and right.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/local_executor.h"
#include "gtest/gtest.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/tiny_deepseek_v4.h"

namespace millrace {
namespace {

constexpr double kTolerance = 5e-4;  // of logits with a spread of about 2, f32 against double
// What rounding errors may not turn round: a choice of experts or entries.
constexpr double kSmallestMargin = 5e-4;
constexpr int32_t kPage = 128;

EngineSetup DeepSeekSetup() {
  return {.pages = 32,
          .page_tokens = kPage,
          .max_model_len = 400,
          .max_batch_tokens = 1024,
          .threads = 1};
}

// The model, a prompt long enough for two pages and what the formulas say of it, computed once.
struct Reference {
  TinyDeepSeekV4 model{{}, 37};
  std::vector<int32_t> prompt = Prompt(300, 3);
  std::vector<std::vector<double>> logits = model.Logits(prompt);

  Request PromptOf(int32_t length, int32_t max_tokens, bool with_logits) const {
    return Greedy({prompt.begin(), prompt.begin() + length}, max_tokens, with_logits);
  }
};

const Reference& TheReference() {
  static const auto& reference = *new Reference();
  return reference;
}

// Logits of prompts of several lengths: each is the beginning of the long one.
void ExpectRight(Engine& engine) {
  const Reference& r = TheReference();
  const std::vector<int32_t> lengths = {1, 3, 4, 130, 300};
  std::vector<Request> requests;
  for (const int32_t length : lengths) requests.push_back(r.PromptOf(length, 1, true));
  const std::vector<Output> outputs = RunAll(engine, requests);
  for (size_t i = 0; i < outputs.size(); ++i) {
    ASSERT_TRUE(outputs[i].status.ok()) << outputs[i].status;
    const std::vector<std::vector<double>> want(r.logits.begin(), r.logits.begin() + lengths[i]);
    EXPECT_LT(LargestError(want, outputs[i].logits), kTolerance) << lengths[i];
  }
}

TEST(DeepSeekV4Parity, AgreesWithTheFormulas) {
  const Reference& r = TheReference();
  ASSERT_GT(r.model.smallest_margin(), kSmallestMargin) << "choose another seed";
  const std::unique_ptr<Engine> engine = Start(Folder(r.model, "formulas"), DeepSeekSetup());
  ASSERT_NE(engine, nullptr);
  ExpectRight(*engine);
  // Decoding, over the border of a page and of a window of 128.
  const Request request = r.PromptOf(125, 6, false);
  double margin = 0;
  const std::vector<int32_t> want = r.model.Greedy(request.prompt, 6, &margin);
  ASSERT_GT(margin, 10 * kTolerance) << "choose another seed: a near-tie says nothing";
  EXPECT_EQ(RunAll(*engine, {request})[0].tokens, want);
}

TEST(DeepSeekV4Parity, OtherShapes) {
  const std::pair<const char*, TinyDeepSeekV4Shape> kShapes[] = {
      {"all_groups_one_stream", {.o_groups = 4, .streams = 1, .ratios = {4, 0, 128}}},
      {"hash_alone_wide_window", {.window = 200, .hash_layers = 3, .ratios = {128, 4, 0}}},
      {"every_entry", {.index_topk = 100, .chosen = 6, .sinkhorn_iters = 1}},
  };
  for (const auto& [name, shape] : kShapes) {
    SCOPED_TRACE(name);
    const TinyDeepSeekV4 model(shape, 6);
    const std::unique_ptr<Engine> engine = Start(Folder(model, name), DeepSeekSetup());
    ASSERT_NE(engine, nullptr);
    const Request request = Greedy(Prompt(270, 9), 1, true);
    const std::vector<std::vector<double>> want = model.Logits(request.prompt);
    ASSERT_GT(model.smallest_margin(), kSmallestMargin) << "choose another seed";
    EXPECT_LT(LargestError(want, RunAll(*engine, {request})[0].logits), kTolerance);
  }
}

TEST(DeepSeekV4Parity, AnySplit) {
  const std::string dir = Folder(TheReference().model, "split");
  for (const bool expert_parallel : {false, true}) {
    SCOPED_TRACE(expert_parallel);
    EngineSetup setup = DeepSeekSetup();
    setup.ranks = 2;
    setup.threads = 4;
    setup.expert_parallel = expert_parallel;
    const std::unique_ptr<Engine> engine = Start(dir, setup);
    ASSERT_NE(engine, nullptr);
    ExpectRight(*engine);
  }
}

// Groups of unequal load, and groups without any, in the same steps.
TEST(DeepSeekV4Parity, DataParallelGroups) {
  const std::string dir = Folder(TheReference().model, "groups");
  struct Case {
    int32_t ranks, groups, chunk;
    bool expert_parallel;
  };
  for (const Case& c : {Case{1, 2, 0, true}, Case{2, 2, 0, true}, Case{1, 3, 64, true},
                        Case{1, 4, 3, true}, Case{1, 2, 64, false}, Case{2, 2, 0, false}}) {
    SCOPED_TRACE(testing::Message() << c.groups << " groups of " << c.ranks << ", chunk " << c.chunk
                                    << (c.expert_parallel ? ", experts apart" : ""));
    EngineSetup setup = DeepSeekSetup();
    setup.ranks = c.ranks;
    setup.groups = c.groups;
    setup.chunk = c.chunk;
    setup.expert_parallel = c.expert_parallel;
    setup.prefix_cache = true;
    const std::unique_ptr<Engine> engine = Start(dir, setup);
    ASSERT_NE(engine, nullptr);
    ExpectRight(*engine);
    // One sequence alone, and again from the cache of the group that had it.
    const Request request = TheReference().PromptOf(200, 4, false);
    const std::vector<Output> first = RunAll(*engine, {request});
    const std::vector<Output> again = RunAll(*engine, {request});
    EXPECT_EQ(again[0].cached_tokens, kPage);
    EXPECT_EQ(again[0].tokens, first[0].tokens);
  }
}

TEST(DeepSeekV4Parity, AnyChunks) {
  const std::string dir = Folder(TheReference().model, "chunks");
  for (const int32_t chunk : {1, 3, 64, 129}) {
    SCOPED_TRACE(chunk);
    EngineSetup setup = DeepSeekSetup();
    setup.chunk = chunk;
    setup.ranks = 1 + chunk % 2;
    setup.expert_parallel = chunk == 3;
    const std::unique_ptr<Engine> engine = Start(dir, setup);
    ASSERT_NE(engine, nullptr);
    ExpectRight(*engine);
  }
}

// The first answers are those of an engine that caches nothing.
TEST(DeepSeekV4Parity, CachedPrefixesAroundEveryPage) {
  const Reference& r = TheReference();
  const std::string dir = Folder(r.model, "cached");
  EngineSetup setup = DeepSeekSetup();
  const std::unique_ptr<Engine> plain = Start(dir, setup);
  setup.prefix_cache = true;
  setup.pages = 64;
  const std::unique_ptr<Engine> caching = Start(dir, setup);
  ASSERT_NE(plain, nullptr);
  ASSERT_NE(caching, nullptr);
  std::vector<Request> requests;
  for (const int32_t length : {127, 128, 129, 130, 255, 256, 257, 261, 300}) {
    requests.push_back(r.PromptOf(length, 8, false));
    requests.push_back(r.PromptOf(length, 8, false));
    requests.back().prompt.back() = (requests.back().prompt.back() + 1) % r.model.shape().vocab;
  }
  RunAll(*caching, {r.PromptOf(300, 1, false)});
  const std::vector<Output> want = RunAll(*plain, requests);
  const std::vector<Output> got = RunAll(*caching, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(got[i].status.ok()) << got[i].status;
    const auto length = static_cast<int32_t>(requests[i].prompt.size());
    EXPECT_EQ(got[i].cached_tokens, (length - 1) / kPage * kPage);
    EXPECT_EQ(got[i].tokens, want[i].tokens) << length;
  }
}

TEST(DeepSeekV4Parity, ABatchChangesNoBit) {
  const Reference& r = TheReference();
  const std::unique_ptr<Engine> engine = Start(Folder(r.model, "batch"), DeepSeekSetup());
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (const int32_t length : {5, 126, 140, 260}) {
    requests.push_back(r.PromptOf(length, 12, true));
    requests.push_back(Sampled(Prompt(length, length), 12, static_cast<uint64_t>(length)));
  }
  const std::vector<Output> together = RunAll(*engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<Output> alone = RunAll(*engine, {requests[i]});
    ASSERT_TRUE(together[i].status.ok()) << together[i].status;
    EXPECT_EQ(together[i].tokens, alone[0].tokens) << i;
    EXPECT_EQ(together[i].logits, alone[0].logits) << i;
  }
}

// Slots and pages go from one sequence to the next with all that is in them.
TEST(DeepSeekV4Parity, PreemptionAndCancelChangeNoToken) {
  const Reference& r = TheReference();
  const std::string dir = Folder(r.model, "preempted");
  std::vector<Request> requests;
  for (int32_t i = 0; i < 5; ++i) {
    requests.push_back(Sampled(Prompt(115 + 5 * i, i), 20, static_cast<uint64_t>(i)));
  }
  for (const bool prefix_cache : {false, true}) {
    EngineSetup setup = DeepSeekSetup();
    const std::unique_ptr<Engine> roomy = Start(dir, setup);
    setup.pages = 6;  // the five need ten
    setup.max_num_seqs = 5;
    setup.prefix_cache = prefix_cache;
    const std::unique_ptr<Engine> tight = Start(dir, setup);
    ASSERT_NE(roomy, nullptr);
    ASSERT_NE(tight, nullptr);
    const std::vector<Output> want = RunAll(*roomy, requests);
    for (int round = 0; round < 2; ++round) {
      RunAndCancel(*tight, r.PromptOf(200, 30, false));
      const std::vector<Output> got = RunAll(*tight, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        ASSERT_TRUE(got[i].status.ok()) << got[i].status;
        EXPECT_EQ(got[i].tokens, want[i].tokens) << i;
      }
    }
    EXPECT_EQ(roomy->Stats().scheduler.preemptions, 0);
    EXPECT_GT(tight->Stats().scheduler.preemptions, 0);
  }
}

// Of logits with a spread of 1.5.
double RmsError(const std::vector<std::vector<double>>& want,
                const std::vector<std::vector<float>>& got) {
  double squares = 0;
  double count = 0;
  for (size_t t = 0; t < want.size(); ++t) {
    for (size_t i = 0; i < want[t].size(); ++i) {
      const double d = want[t][i] - static_cast<double>(got[t][i]);
      squares += d * d;
      ++count;
    }
  }
  return std::sqrt(squares / count);
}

TEST(DeepSeekV4Parity, ServingNumericsAndBFloat16RowsStayNear) {
  const Reference& r = TheReference();
  const std::string dir = Folder(r.model, "serving");
  EngineSetup setup = DeepSeekSetup();
  setup.kv_dtype = DType::kBF16;
  const Request request = r.PromptOf(300, 1, true);
  const std::unique_ptr<Engine> rounded = Start(dir, setup);
  ASSERT_NE(rounded, nullptr);
  const double error = RmsError(r.logits, RunAll(*rounded, {request})[0].logits);
  EXPECT_LT(error, 0.2);
  EXPECT_GT(error, kTolerance) << "was the cache bf16 at all?";
  setup.numerics = Numerics::kServing;
  setup.kv_dtype = DType::kF32;
  const std::unique_ptr<Engine> serving = Start(dir, setup);
  ASSERT_NE(serving, nullptr);
  // Of plain matrices only the indexer's FP4 shows: other entries are picked now and then.
  const double picked = RmsError(r.logits, RunAll(*serving, {request})[0].logits);
  EXPECT_LT(picked, 0.5);
  EXPECT_GT(picked, kTolerance) << "was the indexer quantised at all?";
}

TEST(DeepSeekV4Parity, BytesOfAPageFollowTheFormula) {
  const std::string dir = Folder(TheReference().model, "bytes");
  const TinyDeepSeekV4Shape& s = TheReference().model.shape();
  for (const DType kv : {DType::kF32, DType::kBF16}) {
    EngineSetup setup = DeepSeekSetup();
    setup.kv_dtype = kv;
    setup.page_tokens = 2 * kPage;
    const auto executor = LocalExecutor::Create(ExecutorConfig(dir, setup));
    ASSERT_TRUE(executor.ok()) << executor.status();
    const int64_t element = DTypeBytes(kv);
    const int64_t window = int64_t{2 * kPage} * s.head_dim * element;
    // Entries and keys for each 4 tokens; of the last 4 of each 128 kv and score of one half.
    const int64_t csa = 2 * kPage / 4 * (s.head_dim + s.index_dim) * element +
                        2 * 4 * 2 * (s.head_dim + s.index_dim) * 4;
    const int64_t hca = 2 * s.head_dim * element;
    EXPECT_EQ((*executor)->memory()[0].bytes_per_page, 4 * window + 2 * csa + hca);
  }
}

struct Refusal {
  const char* name;
  EngineSetup setup;
  std::vector<std::string> reasons;
  void (*edit)(TinyDeepSeekV4&);
};

EngineSetup With(void (*change)(EngineSetup&)) {
  EngineSetup setup = DeepSeekSetup();
  change(setup);
  return setup;
}

void AsItIs(TinyDeepSeekV4&) {}

std::vector<Refusal> BadPlacements() {
  return {
      {"groups",
       With([](EngineSetup& s) { s.ranks = 4; }),
       {"layers.0.attn", "tensor parallel size 4", "2 output groups"},
       AsItIs},
      {"heads", With([](EngineSetup& s) { s.ranks = 3; }), {"3", "4 attention heads"}, AsItIs},
      {"page", With([](EngineSetup& s) { s.page_tokens = 64; }), {"--block-size", "128"}, AsItIs},
      {"fp8 rows",
       With([](EngineSetup& s) { s.kv_dtype = DType::kU8; }),
       {"--kv-cache-dtype fp8", "512", "32 and 8"},
       AsItIs},
      {"experts",
       With([](EngineSetup& s) {
         s.groups = 7;
         s.expert_parallel = true;
       }),
       {"layers.0.ffn.experts", "6 experts for 7 ranks"},
       AsItIs}};
}

std::vector<Refusal> BadCheckpoints() {
  return {{"missing",
           DeepSeekSetup(),
           {"layers.1.attn.indexer.weights_proj.weight"},
           [](TinyDeepSeekV4& m) { m.Remove("layers.1.attn.indexer.weights_proj.weight"); }},
          {"missing expert of another rank",
           With([](EngineSetup& s) {
             s.ranks = 2;
             s.expert_parallel = true;
           }),
           {"layers.2.ffn.experts.5.w2.weight"},
           [](TinyDeepSeekV4& m) { m.Remove("layers.2.ffn.experts.5.w2.weight"); }},
          {"left over",
           DeepSeekSetup(),
           {"layers.2.attn.indexer.wq_b.weight", "does not use"},
           [](TinyDeepSeekV4& m) {
             m.Add("layers.2.attn.indexer.wq_b.weight", {{1, 1}, {0.0f}});
           }},
          {"shape",
           DeepSeekSetup(),
           {"layers.0.attn.wkv.weight", "[32, 1]", "[32, 40]"},
           [](TinyDeepSeekV4& m) {
             m.Add("layers.0.attn.wkv.weight", {{32, 1}, std::vector<float>(32)});
           }},
          {"dtype",
           DeepSeekSetup(),
           {"layers.0.hc_attn_scale", "I64"},
           [](TinyDeepSeekV4& m) {
             m.Add("layers.0.hc_attn_scale", {{3}, {1, 1, 1}, WrittenTensor::Type::kI64});
           }},
          {"DSpark", DeepSeekSetup(), {"DSpark"}, [](TinyDeepSeekV4& m) {
             m.Add("mtp.0.main_proj.weight", {{1, 1}, {0.0f}});
           }}};
}

TEST(DeepSeekV4Parity, RefusesInOneLineAndNamesTheReason) {
  std::vector<Refusal> refusals = BadPlacements();
  for (const Refusal& refusal : BadCheckpoints()) refusals.push_back(refusal);
  for (const Refusal& refusal : refusals) {
    TinyDeepSeekV4 model({}, 1);
    refusal.edit(model);
    const absl::Status status =
        LocalExecutor::Create(ExecutorConfig(Folder(model, "refused"), refusal.setup)).status();
    EXPECT_FALSE(status.ok()) << refusal.name;
    for (const std::string& reason : refusal.reasons) {
      EXPECT_NE(std::string(status.message()).find(reason), std::string::npos)
          << refusal.name << ": " << status;
    }
  }
}

TEST(DeepSeekV4Parity, FurtherPredictionLayersAreLeftAlone) {
  TinyDeepSeekV4 model = TheReference().model;
  model.Add("mtp.0.e_proj.weight", {{2, 2}, {1, 2, 3, 4}});
  const std::unique_ptr<Engine> engine = Start(Folder(model, "mtp"), DeepSeekSetup());
  ASSERT_NE(engine, nullptr);
  ExpectRight(*engine);
}

}  // namespace
}  // namespace millrace
