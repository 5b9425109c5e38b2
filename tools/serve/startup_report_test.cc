#include "tools/serve/startup_report.h"

#include <string>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(StartupReport, Commas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(WithCommas(-123456), "-123,456");
}

TEST(StartupReport, MemoryLinesThatScriptsLookFor) {
  RunnerConfig config;
  config.page_tokens = 16;
  config.max_model_len = 1000;
  config.kv_dtype = DType::kU8;
  config.numerics = Numerics::kServing;
  const RankMemory memory = {.weight_bytes = int64_t{1} << 30,
                             .workspace_bytes = int64_t{1} << 29,
                             .bytes_per_page = int64_t{1} << 20,
                             .available_bytes = int64_t{3} << 30,
                             .skipped_tensors = 4631};
  EXPECT_EQ(
      MemoryReport(memory, 512, config),
      "Model weights take 1.00 GiB; activations peak 0.50 GiB; KV cache 0.50 GiB of 3.00 "
      "free (rank 0)\n"
      "KV cache of fp8 rows: 1,048,576 bytes in a page of 16 tokens, 65536.00 a token; serving "
      "numerics\n"
      "Skipped 4,631 tensors of the checkpoint that the model does not use (multi-token "
      "prediction, rotary tables)\n"
      "GPU KV cache size: 8,192 tokens\n"
      "Maximum concurrency for 1,000 tokens per request: 8.19x");
}

TEST(StartupReport, WorldTableLinesUp) {
  RankInfo a;
  a.host = "a";
  a.pid = 1;
  a.transport = "shm";
  a.device = "CPU one";
  RankInfo b = a;
  b.rank = 1;
  b.host = "long-host-name";
  b.pid = 1234567;
  EXPECT_EQ(WorldTable({a, b}),
            "rank  host                pid  transport  device\n"
            "   0  a                     1  shm        CPU one\n"
            "   1  long-host-name  1234567  shm        CPU one");
}

TEST(StartupReport, LastWordsEndInAdvice) {
  const std::string words = LastWords(absl::NotFoundError("rank 1 (host b): no model.safetensors"));
  EXPECT_EQ(words,
            "controller: NOT_FOUND: rank 1 (host b): no model.safetensors\n"
            "Give --model the folder with config.json and the weights.");
}

}  // namespace
}  // namespace millrace
