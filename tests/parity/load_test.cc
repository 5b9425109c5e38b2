// What a checkpoint must have to be loaded, and what is said when it has not.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/parallel/communicator.h"
#include "engine/runtime/model_runner.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

struct Loaded {
  absl::Status status;
  std::vector<std::pair<int64_t, int64_t>> progress;
  RankMemory memory;
};

Loaded Load(const TinyLlama& model, LoadFormat format = LoadFormat::kSafetensors) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "load";
  std::filesystem::create_directories(dir);
  model.Write(dir.string());
  if (format == LoadFormat::kDummy) std::filesystem::remove(dir / "model.safetensors");
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  SingleRank comm(*device);
  RunnerConfig config;
  config.model_dir = dir.string();
  config.load_format = format;
  config.max_model_len = 32;
  Loaded loaded;
  const auto runner = ModelRunner::Create(config, *device, comm, [&](int64_t done, int64_t total) {
    loaded.progress.emplace_back(done, total);
  });
  loaded.status = runner.status();
  if (runner.ok()) loaded.memory = *(*runner)->memory();
  return loaded;
}

TEST(LoadTest, ReportsProgressUpToTheEnd) {
  const Loaded loaded = Load(TinyLlama({}, 1));
  ASSERT_TRUE(loaded.status.ok()) << loaded.status;
  ASSERT_GT(loaded.progress.size(), 5u);
  int64_t before = 0;
  for (const auto& [done, total] : loaded.progress) {
    EXPECT_GT(done, before);
    EXPECT_EQ(total, loaded.progress.back().second);
    before = done;
  }
  EXPECT_EQ(loaded.progress.back().first, loaded.progress.back().second);
  EXPECT_EQ(loaded.memory.weight_bytes, loaded.progress.back().first);
  // 2 layers of keys and values: 3 heads of 8 in bf16, 16 tokens.
  EXPECT_EQ(loaded.memory.bytes_per_page, 2 * 2 * 3 * 8 * 2 * 16);
  EXPECT_GT(loaded.memory.workspace_bytes, 0);
  EXPECT_GT(loaded.memory.available_bytes, 0);
}

TEST(LoadTest, DummyWeightsNeedOnlyTheConfig) {
  EXPECT_TRUE(Load(TinyLlama({}, 1), LoadFormat::kDummy).status.ok());
  EXPECT_TRUE(Load(TinyLlama({.tied = true, .attention_bias = true, .mlp_bias = true}, 1),
                   LoadFormat::kDummy)
                  .status.ok());
}

struct BadCheckpoint {
  const char* name;
  std::vector<std::string> reasons;
  std::function<void(TinyLlama&)> edit;
};

TEST(LoadTest, RefusesBeforeReadingAndNamesTheTensor) {
  const std::string k_proj = "model.layers.1.self_attn.k_proj.weight";
  const BadCheckpoint kBad[] = {
      {"missing", {k_proj}, [&](TinyLlama& m) { m.Remove(k_proj); }},
      {"wrong shape",
       {k_proj, "[24, 49]", "[24, 48]"},
       [&](TinyLlama& m) {
         m.Add(k_proj, {24, 49});
       }},
      {"transposed",
       {k_proj, "[48, 24]"},
       [&](TinyLlama& m) {
         m.Add(k_proj, {48, 24});
       }},
      {"left over",
       {"model.layers.2.self_attn.q_proj.weight", "does not use"},
       [](TinyLlama& m) {
         m.Add("model.layers.2.self_attn.q_proj.weight", {48, 48});
       }},
      {"a bias that the config denies",
       {"model.layers.0.mlp.up_proj.bias"},
       [](TinyLlama& m) { m.Add("model.layers.0.mlp.up_proj.bias", {70}); }},
  };
  for (const BadCheckpoint& bad : kBad) {
    TinyLlama model({}, 1);
    bad.edit(model);
    const Loaded loaded = Load(model);
    EXPECT_FALSE(loaded.status.ok()) << bad.name;
    for (const std::string& reason : bad.reasons) {
      EXPECT_NE(std::string(loaded.status.message()).find(reason), std::string::npos)
          << bad.name << ": " << loaded.status;
    }
    EXPECT_TRUE(loaded.progress.empty()) << bad.name;
  }
}

TEST(LoadTest, ToleratesWhatOldCheckpointsCarry) {
  TinyLlama frequencies({}, 1);
  frequencies.Add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
  EXPECT_TRUE(Load(frequencies).status.ok());
  TinyLlama tied({.tied = true}, 1);
  tied.Add("lm_head.weight", {61, 48});
  EXPECT_TRUE(Load(tied).status.ok());
}

}  // namespace
}  // namespace millrace
