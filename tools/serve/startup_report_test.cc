#include "tools/serve/startup_report.h"

#include <string>

#include "gtest/gtest.h"
#include "tools/serve/advice.h"

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
      "prediction, rotary tables, scales of a cache of codes)\n"
      "GPU KV cache size: 8,192 tokens\n"
      "Maximum concurrency for 1,000 tokens per request: 8.19x");
  config.data_parallel_size = 3;
  EXPECT_NE(MemoryReport(memory, 512, config).find("each of 3 data-parallel groups"),
            std::string::npos);
}

TEST(StartupReport, ModelLenThatFits) {
  RunnerConfig config;
  config.page_tokens = 16;
  config.max_model_len = 100000;
  config.fit_model_len = true;
  EXPECT_EQ(ModelLenLine(512, config),
            "Maximum model length (auto): 8,192 tokens, what the cache holds, of 100,000 that the "
            "model was made for");
  const std::string report = MemoryReport({}, 512, config);
  EXPECT_NE(report.find("Maximum concurrency for 8,192 tokens per request: 1.00x"),
            std::string::npos)
      << report;
  EXPECT_EQ(ModelLenLine(6250, config),
            "Maximum model length (auto): 100,000 tokens, what the model was made for");
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
  const absl::Status missing = absl::NotFoundError("cluster secret /x: No such file or directory");
  EXPECT_EQ(LastWords(During(StartStep::kSecret, missing)),
            "controller: NOT_FOUND: cluster secret /x: No such file or directory\n" +
                AdviceFor(StartStep::kSecret, absl::StatusCode::kNotFound));
  EXPECT_EQ(LastWords(absl::UnavailableError("worker lost: rank 1")),
            "controller: UNAVAILABLE: worker lost: rank 1\n"
            "The lines above say what happened before.");
}

}  // namespace
}  // namespace millrace
