// The configs of the golden checkpoints, where they are beside the workspace.
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "engine/config/parse.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using enum DeepSeekV4Attention;
using enum DeepSeekV4Router;
using enum DeepSeekV4Storage;

// Where the workspace really is: this test's data are links into it.
std::filesystem::path GoldenFolder() {
  std::error_code error;
  const std::filesystem::path here = std::filesystem::canonical("engine/config/README.md", error);
  if (error) return {};
  const std::filesystem::path workspace = here.parent_path().parent_path().parent_path();
  const std::filesystem::path folder = workspace.parent_path() / "shared" / "golden";
  return std::filesystem::is_directory(folder, error) ? folder : std::filesystem::path();
}

TEST(DeepSeekV4Golden, FoldersAreReadAsWhatTheyAre) {
  const std::filesystem::path golden = GoldenFolder();
  if (golden.empty())
    GTEST_SKIP() << "NOT CHECKED: no folder ../shared/golden beside the workspace";
  const auto tiny = LoadModelConfig((golden / "tiny-deepseek-v4").string());
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  EXPECT_EQ(tiny->deepseek_v4->layers, (std::vector<DeepSeekV4Layer>{{kWindow, kHash, kPlain},
                                                                     {kCsa, kHash, kPlain},
                                                                     {kHca, kScore, kPlain},
                                                                     {kCsa, kScore, kPlain},
                                                                     {kHca, kScore, kPlain}}));
  const std::pair<const char*, DeepSeekV4Storage> small[] = {{"small-deepseek-v4-mxfp4", kMxFp4},
                                                             {"small-deepseek-v4-nvfp4", kNvFp4}};
  for (const auto& [name, storage] : small) {
    const auto loaded = LoadModelConfig((golden / name).string());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const std::optional<DeepSeekV4Config>& config = loaded->deepseek_v4;
    ASSERT_EQ(config->layers.size(), 4u);
    for (const DeepSeekV4Layer& layer : config->layers) EXPECT_EQ(layer.experts, storage);
    EXPECT_EQ(config->quantization.dense, kFp8Block);
    EXPECT_EQ(config->quantization.block_scale, DeepSeekV4BlockScale::kE8M0);
    EXPECT_EQ(config->hidden_size, 192);
  }
}

}  // namespace
}  // namespace millrace
