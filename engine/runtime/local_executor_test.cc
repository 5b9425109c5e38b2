#include "engine/runtime/local_executor.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace millrace {
namespace {

LocalExecutorConfig Config(int32_t ranks) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "local_executor";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "config.json") << R"({"architectures": ["LlamaForCausalLM"],
      "model_type": "llama", "vocab_size": 50, "hidden_size": 32, "intermediate_size": 40,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
      "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
      "torch_dtype": "bfloat16"})";
  LocalExecutorConfig config;
  config.runner.model_dir = dir.string();
  config.runner.load_format = LoadFormat::kDummy;
  config.runner.dtype = DType::kF32;
  config.runner.kv_dtype = DType::kF32;
  config.runner.page_tokens = 4;
  config.runner.max_num_seqs = 4;
  config.runner.max_num_batched_tokens = 16;
  config.runner.max_model_len = 16;
  config.tensor_parallel_size = ranks;
  config.threads = 2;
  return config;
}

StepPlan First() {
  StepPlan plan;
  plan.step = 1;
  SequencePlan s;
  s.init = SlotInit();
  s.init->sampling.temperature = 0;
  s.new_pages = {5, 2};
  s.tokens = {1, 2, 3, 4, 5};
  s.sample = true;
  plan.sequences.push_back(std::move(s));
  return plan;
}

// The token that step 1 sampled, not named.
StepPlan Next(int64_t step) {
  StepPlan plan;
  plan.step = step;
  SequencePlan s;
  s.position = static_cast<int32_t>(step) + 3;
  s.sample = true;
  plan.sequences.push_back(s);
  return plan;
}

TEST(LocalExecutorTest, TwoStepsAreLaunchedBeforeOneIsCollected) {
  int32_t tokens[2][3];
  for (const int32_t ranks : {1, 2}) {
    auto executor = LocalExecutor::Create(Config(ranks));
    ASSERT_TRUE(executor.ok()) << executor.status();
    ASSERT_EQ((*executor)->memory().size(), static_cast<size_t>(ranks));
    ASSERT_TRUE((*executor)->AllocateCache(8).ok());
    ASSERT_TRUE((*executor)->Launch(First()).ok());
    for (int64_t step = 2; step <= 3; ++step) {
      ASSERT_TRUE((*executor)->Launch(Next(step)).ok());
      const absl::StatusOr<StepResult> result = (*executor)->Collect();
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->step, step - 1);
      tokens[ranks - 1][step - 2] = result->sequences[0].token;
    }
    tokens[ranks - 1][2] = (*executor)->Collect()->sequences[0].token;
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(tokens[0][i], 0);
    EXPECT_EQ(tokens[0][i], tokens[1][i]);
  }
}

TEST(LocalExecutorTest, KvHeadsAreSharedOut) {
  const auto one = LocalExecutor::Create(Config(1));
  const auto two = LocalExecutor::Create(Config(2));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ((*one)->memory()[0].bytes_per_page, 2 * 2 * 2 * 8 * 4 * 4);
  EXPECT_EQ((*two)->memory()[1].bytes_per_page, 2 * 2 * 1 * 8 * 4 * 4);
  EXPECT_LT((*two)->memory()[0].weight_bytes, (*one)->memory()[0].weight_bytes);
}

TEST(LocalExecutorTest, ABadPlanSurfacesInCollectAndStays) {
  auto executor = LocalExecutor::Create(Config(2));
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->AllocateCache(8).ok());
  StepPlan bad = First();
  bad.sequences[0].new_pages[1] = 8;
  ASSERT_TRUE((*executor)->Launch(bad).ok());
  const absl::Status status = (*executor)->Collect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("new_pages[1] = 8"), std::string::npos) << status;
  EXPECT_FALSE((*executor)->Launch(First()).ok());
}

TEST(LocalExecutorTest, APlanOfAGroupThatIsNotThereSurfacesInCollect) {
  auto executor = LocalExecutor::Create(Config(1));
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->AllocateCache(8).ok());
  StepPlan bad = First();
  bad.sequences[0].group = 1;
  ASSERT_TRUE((*executor)->Launch(bad).ok());
  const absl::Status status = (*executor)->Collect().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("group 1, want 0 to 0"), std::string::npos)
      << status;
}

TEST(LocalExecutorTest, AStepNeedsTheCache) {
  auto executor = LocalExecutor::Create(Config(1));
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->Launch(First()).ok());
  EXPECT_EQ((*executor)->Collect().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LocalExecutorTest, TheCacheIsAllocatedOnce) {
  auto executor = LocalExecutor::Create(Config(1));
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->AllocateCache(8).ok());
  EXPECT_EQ((*executor)->AllocateCache(8).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(LocalExecutorTest, DestructionDoesNotWaitForCollect) {
  auto executor = LocalExecutor::Create(Config(2));
  ASSERT_TRUE(executor.ok()) << executor.status();
  ASSERT_TRUE((*executor)->AllocateCache(8).ok());
  ASSERT_TRUE((*executor)->Launch(First()).ok());
  ASSERT_TRUE((*executor)->Launch(Next(2)).ok());
}

TEST(LocalExecutorTest, RefusesWhatItCannotBe) {
  LocalExecutorConfig config = Config(1);
  config.tensor_parallel_size = 0;
  EXPECT_FALSE(LocalExecutor::Create(config).ok());
  config = Config(1);
  config.runner.max_num_batched_tokens = 3;
  const absl::Status status = LocalExecutor::Create(config).status();
  EXPECT_NE(std::string(status.message()).find("max_num_batched_tokens = 3"), std::string::npos);
  config = Config(1);
  config.runner.model_dir = "/no/such/folder";
  EXPECT_EQ(LocalExecutor::Create(config).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace millrace
