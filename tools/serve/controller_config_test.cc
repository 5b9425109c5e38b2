#include "tools/serve/controller_config.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>

#include "distributed/controller/frontdoor/testing/letters.h"
#include "gtest/gtest.h"
#include "tools/serve/advice.h"

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
  EXPECT_EQ(config->runner.numerics, Numerics::kReference) << "a LLaMA has no other";
  EXPECT_TRUE(config->scheduler.enable_prefix_caching);
  EXPECT_NE(config->model.tokenizer, nullptr);
}

TEST(ControllerConfig, Quantization) {
  const auto resolve = [](const std::string& quantization, const std::string& numerics) {
    ControllerFlags flags = Flags();
    flags.quantization = quantization;
    flags.numerics = numerics;
    return ResolveConfig(flags);
  };
  const auto fp8 = resolve("fp8", "serving");
  ASSERT_TRUE(fp8.ok()) << fp8.status();
  EXPECT_TRUE(fp8->runner.quantize);
  EXPECT_EQ(fp8->runner.numerics, Numerics::kServing);
  for (const char* same : {"auto", "none"}) {
    const auto config = resolve(same, "serving");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_FALSE(config->runner.quantize);
    EXPECT_EQ(config->runner.numerics, Numerics::kReference);
  }
  const auto message = [&](const std::string& quantization, const std::string& numerics) {
    return std::string(resolve(quantization, numerics).status().message());
  };
  EXPECT_NE(message("fp8", "reference").find("--numerics=reference rules out"), std::string::npos);
  EXPECT_NE(message("modelopt", "serving").find("is not quantised"), std::string::npos);
  EXPECT_NE(message("int4", "serving").find("--quantization=int4: want auto, none, fp8"),
            std::string::npos);
}

TEST(ControllerConfig, FlagsReachEveryPart) {
  ControllerFlags flags = Flags();
  flags.model += "/";
  flags.served_model_name = "mine";
  flags.max_model_len = "100";
  flags.max_num_seqs = 3;
  flags.max_num_batched_tokens = 7;
  flags.block_size = 32;
  flags.dtype = "float32";
  flags.kv_cache_dtype = "bfloat16";
  flags.load_format = "dummy";
  flags.seed = 9;
  flags.enable_prefix_caching = false;
  flags.tensor_parallel_size = 2;
  flags.data_parallel_size = 5;
  flags.enable_expert_parallel = true;
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
  EXPECT_EQ(config->tensor_parallel_size, 2);
  EXPECT_EQ(config->runner.data_parallel_size, 5);
  EXPECT_EQ(config->scheduler.data_parallel_size, 5);
  EXPECT_EQ(config->model.data_parallel_size, 5);
  EXPECT_TRUE(config->runner.expert_parallel);
  flags.served_model_name = "";
  EXPECT_EQ(ResolveConfig(flags)->model.name, "letters");
}

TEST(ControllerConfig, MaxModelLenThatFits) {
  ControllerFlags flags = Flags();
  EXPECT_FALSE(ResolveConfig(flags)->runner.fit_model_len);
  for (const char* spelling : {"auto", "-1"}) {
    flags.max_model_len = spelling;
    const auto config = ResolveConfig(flags);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(config->runner.fit_model_len);
    EXPECT_EQ(config->runner.max_model_len, 4096) << "the most that there may be";
  }
}

TEST(ControllerConfig, RefusalsNameTheFlag) {
  const std::pair<const char*, std::function<void(ControllerFlags&)>> cases[] = {
      {"--model", [](auto& f) { f.model = ""; }},
      {"--model", [](auto& f) { f.model = "/nonexistent"; }},
      {"--pipeline-parallel-size", [](auto& f) { f.pipeline_parallel_size = 2; }},
      {"--data-parallel-size", [](auto& f) { f.data_parallel_size = 0; }},
      {"--tensor-parallel-size", [](auto& f) { f.tensor_parallel_size = 0; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = "-2"; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = "4097"; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = "all"; }},
      {"--max-model-len", [](auto& f) { f.max_model_len = ""; }},
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

TEST(ControllerConfig, RefusalsCarryTheAdviceOfTheirStep) {
  const std::string broken = ::testing::TempDir() + "/broken";
  std::filesystem::create_directories(broken);
  std::ofstream(broken + "/tokenizer.json") << "{";
  const std::tuple<StartStep, absl::StatusCode, std::function<void(ControllerFlags&)>> cases[] = {
      {StartStep::kFlags, absl::StatusCode::kInvalidArgument, [](auto& f) { f.dtype = "int3"; }},
      {StartStep::kModel, absl::StatusCode::kNotFound, [](auto& f) { f.model = "/nonexistent"; }},
      {StartStep::kTokenizer, absl::StatusCode::kNotFound,
       [](auto& f) { f.tokenizer = "/nonexistent"; }},
      {StartStep::kTokenizer, absl::StatusCode::kInvalidArgument,
       [&](auto& f) { f.tokenizer = broken; }},
      {StartStep::kSplit, absl::StatusCode::kInvalidArgument,
       [](auto& f) { f.tensor_parallel_size = 1000; }},
  };
  for (const auto& [step, code, change] : cases) {
    ControllerFlags flags = Flags();
    change(flags);
    const absl::Status status = ResolveConfig(flags).status();
    EXPECT_EQ(AdviceOf(status), AdviceFor(step, code)) << status;
  }
}

}  // namespace
}  // namespace millrace
