// A DeepSeek-V4 that our own tool has quantised, in each format, against the numbers that its codes
// stand for, stored as floats.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "engine/runtime/local_executor.h"
#include "gtest/gtest.h"
#include "tests/parity/dequantised_checkpoint.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/tiny_deepseek_v4.h"
#include "tools/weights/quantize_run.h"

namespace millrace {
namespace {

// Widths are whole blocks of FP4, and no part of wo_a or of a cut expert is whole tiles of FP8.
TinyDeepSeekV4Shape QuantisableShape() {
  return {.hidden = 96, .q_rank = 40, .o_rank = 20, .width = 64, .ratios = {0, 4, 128}};
}

struct Split {
  const char* name;
  int32_t ranks;
  bool expert_parallel;
};
constexpr Split kSplits[] = {{"one", 1, false}, {"two", 2, false}, {"experts of two", 2, true}};

EngineSetup SetupOf(const Split& split) {
  return {.ranks = split.ranks,
          .pages = 32,
          .page_tokens = 128,
          .max_model_len = 400,
          .max_batch_tokens = 1024,
          .expert_parallel = split.expert_parallel,
          .threads = 2};
}

std::vector<std::vector<float>> LogitsOf(const std::string& dir, const Split& split) {
  const std::unique_ptr<Engine> engine = Start(dir, SetupOf(split));
  if (engine == nullptr) return {};
  const std::vector<Output> outputs = RunAll(*engine, {Greedy(Prompt(150, 5), 4, true)});
  EXPECT_TRUE(outputs[0].status.ok()) << outputs[0].status;
  return outputs[0].logits;
}

// Letters, for folders and tests.
std::string NameOf(QuantTarget target) {
  switch (target) {
    case QuantTarget::kFp8:
      return "fp8";
    case QuantTarget::kMxfp4:
      return "mxfp4";
    case QuantTarget::kNvfp4:
      return "nvfp4";
    default:
      return "nvfp4_ct";
  }
}

class StoredFormatsTest : public testing::TestWithParam<QuantTarget> {
 protected:
  // The model, quantised.
  std::string Quantised(const TinyDeepSeekV4& model, const std::string& name) {
    plain_ = Folder(model, name + "_plain");
    const std::string to = MakeFolder(name + "_" + NameOf(GetParam()));
    std::filesystem::remove_all(to);  // what an earlier run left
    const absl::StatusOr<QuantizeReport> report =
        QuantizeCheckpoint({.input = plain_, .output = to, .target = GetParam()});
    EXPECT_TRUE(report.ok()) << report.status();
    return to;
  }

  std::string plain_;
};

// Bit for bit: nothing is lost by keeping the codes, however the model is split.
TEST_P(StoredFormatsTest, AgreesWithItsDequantisedSelf) {
  const TinyDeepSeekV4 model(QuantisableShape(), 11);
  const std::string quantised = Quantised(model, "agrees");
  const std::string dequantised = MakeFolder("agrees_dequantised");
  WriteDequantised(quantised, plain_, dequantised);
  const std::vector<std::vector<float>> exact = LogitsOf(plain_, kSplits[0]);
  for (const Split& split : kSplits) {
    SCOPED_TRACE(split.name);
    const std::vector<std::vector<float>> got = LogitsOf(quantised, split);
    ASSERT_EQ(got.size(), 150u);
    EXPECT_EQ(got, LogitsOf(dequantised, split));
    EXPECT_NE(got, exact) << "was anything quantised?";
  }
}

// The file's bytes, but for what is widened: norms, embedding and head are f32 here, and the table
// of experts is narrowed.
TEST_P(StoredFormatsTest, MemoryIsTheFormats) {
  const TinyDeepSeekV4Shape shape = QuantisableShape();
  const TinyDeepSeekV4 model(shape, 11);
  const std::string quantised = Quantised(model, "memory");
  const StoredBytes bytes = WriteDequantised(quantised, plain_, MakeFolder("memory_dequantised"));
  const auto executor = LocalExecutor::Create(ExecutorConfig(quantised, SetupOf(kSplits[0])));
  ASSERT_TRUE(executor.ok()) << executor.status();
  const int64_t norms = 3 * (2 * shape.hidden + shape.q_rank + shape.head_dim) + shape.hidden +
                        2 * shape.head_dim + shape.index_dim;
  const int64_t widened = 2 * (norms + 2 * int64_t{shape.vocab} * shape.hidden);
  const int64_t narrowed = 4 * int64_t{shape.vocab} * shape.chosen;
  EXPECT_EQ((*executor)->memory()[0].weight_bytes,
            bytes.matrices + bytes.plain + widened - narrowed);
}

INSTANTIATE_TEST_SUITE_P(Formats, StoredFormatsTest,
                         testing::Values(QuantTarget::kFp8, QuantTarget::kMxfp4,
                                         QuantTarget::kNvfp4, QuantTarget::kNvfp4Ct),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace millrace
