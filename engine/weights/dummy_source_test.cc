#include "engine/weights/dummy_source.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/weights/llama_tensors.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

ModelConfig SmallConfig() {
  ModelConfig config;
  config.vocab_size = 320;
  config.hidden_size = 192;
  config.intermediate_size = 512;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 32;
  return config;
}

std::vector<float> ReadAll(const DummySource& source, const std::string& name) {
  const TensorInfo info = *source.Find(name);
  std::vector<Range> ranges;
  for (const int64_t extent : info.shape) ranges.push_back({0, extent});
  std::vector<float> values(static_cast<size_t>(info.num_elements()));
  EXPECT_TRUE(source.Read(name, ranges, DType::kF32, values.data()).ok());
  return values;
}

TEST(LlamaTensors, NamesAndShapes) {
  ModelConfig config = SmallConfig();
  const std::vector<TensorInfo> untied = LlamaTensors(config);
  EXPECT_EQ(untied.size(), 1u + 2 * 9 + 2);
  EXPECT_EQ(untied.back().name, "lm_head.weight");
  config.tie_embeddings = true;
  config.attention_bias = true;
  config.mlp_bias = true;
  std::set<std::string> seen;
  for (const TensorInfo& tensor : LlamaTensors(config)) {
    seen.insert(tensor.name + ShapeString(tensor.shape));
  }
  EXPECT_EQ(seen.size(), 1u + 2 * 16 + 1);
  for (const char* want :
       {"model.embed_tokens.weight[320, 192]", "model.norm.weight[192]",
        "model.layers.1.self_attn.q_proj.weight[96, 192]",
        "model.layers.1.self_attn.q_proj.bias[96]",
        "model.layers.0.self_attn.k_proj.weight[32, 192]",
        "model.layers.0.self_attn.v_proj.bias[32]",
        "model.layers.0.self_attn.o_proj.weight[192, 96]",
        "model.layers.0.self_attn.o_proj.bias[192]",
        "model.layers.0.mlp.gate_proj.weight[512, 192]", "model.layers.0.mlp.up_proj.bias[512]",
        "model.layers.0.mlp.down_proj.weight[192, 512]", "model.layers.0.mlp.down_proj.bias[192]",
        "model.layers.1.input_layernorm.weight[192]",
        "model.layers.1.post_attention_layernorm.weight[192]"}) {
    EXPECT_TRUE(seen.count(want)) << want;
  }
}

TEST(DummySource, SameModelHoweverItIsSplit) {
  const DummySource source(SmallConfig(), 7);
  const std::string name = "model.layers.1.mlp.down_proj.weight";  // [192, 512]
  const std::vector<float> whole = ReadAll(source, name);
  for (int32_t parts : {2, 3}) {
    for (int32_t part = 0; part < parts; ++part) {
      const Range rows = BalancedRange(192, parts, part);
      const Range cols = BalancedRange(512, parts, part);
      std::vector<float> box(static_cast<size_t>(rows.size() * cols.size()));
      ASSERT_TRUE(source.Read(name, {rows, cols}, DType::kF32, box.data()).ok());
      size_t i = 0;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t col = cols.begin; col < cols.end; ++col) {
          ASSERT_EQ(box[i++], whole[static_cast<size_t>(row * 512 + col)]);
        }
      }
    }
  }
}

TEST(DummySource, BellShaped) {
  const DummySource source(SmallConfig(), 7);
  const std::vector<float> values = ReadAll(source, "model.layers.0.mlp.up_proj.weight");
  double sum = 0, squares = 0;
  int within_one = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
    within_one += std::abs(value) < 0.02f;
    ASSERT_LT(std::abs(value), 0.0701f);
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0.0, 0.02 * 5 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.0005);
  EXPECT_NEAR(within_one / n, 0.68, 0.03);
  const std::set<float> distinct(values.begin(), values.end());
  EXPECT_GT(distinct.size(), 1000u);
}

TEST(DummySource, NormsAreOne) {
  const DummySource source(SmallConfig(), 7);
  for (const char* name : {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.1.post_attention_layernorm.weight"}) {
    for (const float value : ReadAll(source, name)) ASSERT_EQ(value, 1.0f);
  }
}

TEST(DummySource, SeedAndNameMatter) {
  const DummySource a(SmallConfig(), 7), b(SmallConfig(), 8), c(SmallConfig(), 7);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  EXPECT_EQ(ReadAll(a, name), ReadAll(c, name));
  EXPECT_NE(ReadAll(a, name), ReadAll(b, name));
  EXPECT_NE(ReadAll(a, name), ReadAll(a, "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_EQ(*a.Fingerprint(), *c.Fingerprint());
  EXPECT_NE(*a.Fingerprint(), *b.Fingerprint());
  // Known values: a change of the formula would part ranks of two builds.
  const std::vector<float> values = ReadAll(a, name);
  EXPECT_EQ(values[0], -0.0242919921875f);
  EXPECT_EQ(values[33], -0.020751953125f);
}

TEST(DummySource, WideAndNarrowAgree) {
  const DummySource source(SmallConfig(), 7);
  const std::string name = "model.layers.0.self_attn.k_proj.weight";  // [32, 192], stored as bf16
  const std::vector<float> wide = ReadAll(source, name);
  std::vector<BFloat16> narrow(wide.size());
  ASSERT_TRUE(source.Read(name, {Range{0, 32}, Range{0, 192}}, DType::kBF16, narrow.data()).ok());
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(ToFloat(narrow[i]), wide[i]);
}

TEST(DummySource, Refusals) {
  const DummySource source(SmallConfig(), 7);
  float out[4];
  EXPECT_EQ(source.Read("none", {Range{0, 1}}, DType::kF32, out).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(source.Read("model.norm.weight", {Range{190, 193}}, DType::kF32, out).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(source.Expect("model.norm.weight", {191}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(source.Names().size(), 21u);
}

}  // namespace
}  // namespace millrace
