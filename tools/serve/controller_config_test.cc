#include "tools/serve/controller_config.h"

#include <functional>
#include <string>

#include "distributed/controller/frontdoor/testing/letters.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

ControllerFlags Flags() {
  ControllerFlags flags;
  flags.model = WriteLettersFolder(::testing::TempDir());
  return flags;
}

TEST(ControllerConfig, Defaults) {
  const auto config = ResolveConfig(Flags());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.name, "letters");
  EXPECT_EQ(config->model.max_model_len, 4096);
  EXPECT_EQ(config->runner.max_model_len, 4096);
  EXPECT_EQ(config->scheduler.max_model_len, 4096);
  EXPECT_EQ(config->runner.dtype, DType::kBF16);
  EXPECT_EQ(config->runner.kv_dtype, DType::kBF16);
  EXPECT_EQ(config->runner.load_format, LoadFormat::kSafetensors);
  EXPECT_EQ(config->model.dtype, "bfloat16");
  EXPECT_TRUE(config->scheduler.enable_prefix_caching);
  EXPECT_NE(config->model.tokenizer, nullptr);
}

TEST(ControllerConfig, FlagsReachEveryPart) {
  ControllerFlags flags = Flags();
  flags.model += "/";
  flags.served_model_name = "mine";
  flags.max_model_len = 100;
  flags.max_num_seqs = 3;
  flags.max_num_batched_tokens = 7;
  flags.block_size = 32;
  flags.dtype = "float32";
  flags.kv_cache_dtype = "bfloat16";
  flags.load_format = "dummy";
  flags.seed = 9;
  flags.enable_prefix_caching = false;
  const auto config = ResolveConfig(flags);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->model.name, "mine");
  EXPECT_EQ(config->runner.dtype, DType::kF32);
  EXPECT_EQ(config->runner.kv_dtype, DType::kBF16);
  EXPECT_EQ(config->runner.load_format, LoadFormat::kDummy);
  EXPECT_EQ(config->runner.seed, 9u);
  EXPECT_EQ(config->runner.page_tokens, 32);
  EXPECT_EQ(config->scheduler.page_tokens, 32);
  EXPECT_EQ(config->scheduler.max_num_seqs, 3);
  EXPECT_EQ(config->scheduler.max_num_batched_tokens, 7);
  EXPECT_FALSE(config->scheduler.enable_prefix_caching);
  flags.served_model_name = "";
  EXPECT_EQ(ResolveConfig(flags)->model.name, "letters");
}

TEST(ControllerConfig, RefusalsNameTheFlag) {
  const std::pair<const char*, std::function<void(ControllerFlags&)>> cases[] = {
      {"--model", [](auto& f) { f.model = ""; }},
      {"--model", [](auto& f) { f.model = "/nonexistent"; }},
      {"--pipeline-parallel-size", [](auto& f) { f.pipeline_parallel_size = 2; }},
      {"--data-parallel-size", [](auto& f) { f.data_parallel_size = 0; }},
      {"--tensor-parallel-size", [](auto& f) { f.tensor_parallel_size = 0; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = -1; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = 4097; }},
      {"--max-num-seqs", [](auto& f) { f.max_num_seqs = 0; }},
      {"--max-num-batched-tokens", [](auto& f) { f.max_num_batched_tokens = 63; }},
      {"--block-size", [](auto& f) { f.block_size = -1; }},
      {"--dtype", [](auto& f) { f.dtype = "float16"; }},
      {"--kv-cache-dtype", [](auto& f) { f.kv_cache_dtype = "int8"; }},
      {"--load-format", [](auto& f) { f.load_format = "gguf"; }},
      {"--gpu-memory-utilization", [](auto& f) { f.gpu_memory_utilization = 1.5; }},
      {"--gpu-memory-utilization", [](auto& f) { f.gpu_memory_utilization = -0.1; }},
      {"--kv-cache-memory-bytes", [](auto& f) { f.kv_cache_memory_bytes = -1; }},
  };
  for (const auto& [flag, change] : cases) {
    ControllerFlags flags = Flags();
    change(flags);
    const auto config = ResolveConfig(flags);
    ASSERT_FALSE(config.ok()) << flag;
    EXPECT_EQ(std::string(config.status().message()).rfind(flag, 0), 0u) << config.status();
  }
}

}  // namespace
}  // namespace millrace
