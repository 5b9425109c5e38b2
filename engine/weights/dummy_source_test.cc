#include "engine/weights/dummy_source.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/weights/deepseek_v4_tensors.h"
#include "engine/weights/llama_tensors.h"
#include "engine/weights/stored_layout.h"
#include "gtest/gtest.h"
#include "kernels/lowp/block_formats.h"

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

// Two layers: window with a hash router, CSA with scores.
ModelConfig SmallDeepSeekV4(DeepSeekV4Storage dense, DeepSeekV4Storage experts) {
  DeepSeekV4Config c;
  c.vocab_size = 50;
  c.hidden_size = 96;
  c.num_heads = 4;
  c.head_dim = 64;
  c.rope_dim = 16;
  c.q_lora_rank = 160;
  c.o_groups = 2;
  c.o_lora_rank = 32;
  c.index_heads = 3;
  c.index_head_dim = 32;
  c.expert_width = 64;
  c.num_experts = 5;
  c.experts_per_token = 2;
  c.hc_streams = 4;
  c.layers = {{DeepSeekV4Attention::kWindow, DeepSeekV4Router::kHash, experts},
              {DeepSeekV4Attention::kCsa, DeepSeekV4Router::kScore, experts},
              {DeepSeekV4Attention::kHca, DeepSeekV4Router::kScore, experts}};
  c.quantization.dense = dense;
  ModelConfig config;
  config.family = ModelFamily::kDeepSeekV4;
  config.deepseek_v4 = c;
  return config;
}

template <typename T>
std::vector<T> ReadBytes(const DummySource& source, const TensorInfo& info) {
  std::vector<Range> ranges;
  for (const int64_t extent : info.shape) ranges.push_back({0, extent});
  std::vector<T> values(static_cast<size_t>(info.num_elements()));
  EXPECT_TRUE(source.ReadRaw(info.name, ranges, values.data()).ok());
  return values;
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

TEST(DeepSeekV4Tensors, NamesTypesAndShapes) {
  const ModelConfig config =
      SmallDeepSeekV4(DeepSeekV4Storage::kFp8Block, DeepSeekV4Storage::kMxFp4);
  std::set<std::string> seen;
  for (const TensorInfo& tensor : DeepSeekV4Tensors(*config.deepseek_v4)) {
    seen.insert(tensor.name + " " + std::string(FileDTypeName(tensor.dtype)) +
                ShapeString(tensor.shape));
  }
  for (const char* want : {"embed.weight BF16[50, 96]",
                           "hc_head_fn F32[4, 384]",
                           "hc_head_base F32[4]",
                           "hc_head_scale F32[1]",
                           "layers.0.hc_attn_fn F32[24, 384]",
                           "layers.2.hc_ffn_scale F32[3]",
                           "layers.0.attn.attn_sink F32[4]",
                           "layers.0.attn.wq_a.scale F8_E8M0[2, 1]",
                           "layers.1.attn.wq_b.weight F8_E4M3[256, 160]",
                           "layers.1.attn.wo_a.weight F8_E4M3[64, 128]",
                           "layers.1.attn.wo_b.weight F8_E4M3[96, 64]",
                           "layers.1.attn.compressor.ape F32[4, 128]",
                           "layers.2.attn.compressor.ape F32[128, 64]",
                           "layers.1.attn.compressor.wgate.weight BF16[128, 96]",
                           "layers.1.attn.indexer.compressor.wkv.weight BF16[64, 96]",
                           "layers.1.attn.indexer.wq_b.weight F8_E4M3[96, 160]",
                           "layers.1.attn.indexer.weights_proj.weight BF16[3, 96]",
                           "layers.0.ffn.gate.tid2eid I64[50, 2]",
                           "layers.1.ffn.gate.bias F32[5]",
                           "layers.2.ffn.experts.4.w1.weight I8[64, 48]",
                           "layers.0.ffn.experts.0.w2.weight I8[96, 32]",
                           "layers.0.ffn.experts.0.w3.scale F8_E8M0[64, 3]",
                           "layers.0.ffn.shared_experts.w2.weight F8_E4M3[96, 64]"}) {
    EXPECT_TRUE(seen.count(want)) << want;
  }
  // Each layer 8 of connections and norms around it, its attention, and its experts.
  const size_t experts = 2 * 3 * (5 + 1);
  EXPECT_EQ(seen.size(), 6 + (8 + 13 + 2 + experts) + (8 + 13 + 4 + 3 + 4 + 2 + experts) +
                             (8 + 13 + 4 + 2 + experts));
  EXPECT_TRUE(IsDeepSeekV4Mtp("mtp.0.e_proj.weight"));
  EXPECT_FALSE(IsDeepSeekV4Mtp("layers.0.mtp.weight"));
}

// Codes and scales of every format stand for the same kind of numbers.
TEST(DummySource, QuantisedMatricesAreBellShapedToo) {
  using Storage = DeepSeekV4Storage;
  for (const Storage storage : {Storage::kFp8Block, Storage::kMxFp4, Storage::kNvFp4}) {
    for (const bool other : {false, true}) {
      ModelConfig config = SmallDeepSeekV4(Storage::kFp8Block, storage);
      DeepSeekV4Quantization& q = config.deepseek_v4->quantization;
      if (other) q.block_scale = DeepSeekV4BlockScale::kF32;
      if (other) q.nvfp4_keys = DeepSeekV4NvFp4Keys::kCompressedTensors;
      const DummySource source(config, 3);
      const absl::StatusOr<StoredLayout> layout =
          FindStoredLayout(source, "layers.1.ffn.experts.2.w1", 64, 96);
      ASSERT_TRUE(layout.ok()) << layout.status();
      const std::vector<uint8_t> codes = ReadBytes<uint8_t>(source, layout->values);
      std::vector<float> w(64 * 96);
      const absl::Span<float> out = absl::MakeSpan(w);
      if (storage == Storage::kFp8Block && other) {
        DequantizeFp8({64, 96}, codes, ReadBytes<float>(source, layout->scales), out);
      } else if (storage == Storage::kFp8Block) {
        DequantizeFp8({64, 96}, codes, ReadBytes<uint8_t>(source, layout->scales), out);
      } else if (storage == Storage::kMxFp4) {
        DequantizeMxfp4({64, 96}, codes, ReadBytes<uint8_t>(source, layout->scales), out);
      } else {
        const Nvfp4Global global = {ReadBytes<float>(source, layout->factor)[0],
                                    layout->divide_by_factor};
        DequantizeNvfp4({64, 96}, codes, ReadBytes<uint8_t>(source, layout->scales), global, out);
      }
      double sum = 0, squares = 0;
      for (const float value : w) {
        sum += value;
        squares += double{value} * value;
      }
      const double n = static_cast<double>(w.size());
      EXPECT_NEAR(sum / n, 0.0, 0.02 * 5 / std::sqrt(n));
      EXPECT_NEAR(std::sqrt(squares / n), 0.02, 0.001);
    }
  }
}

TEST(DummySource, IndicesAreExpertsAndDistinct) {
  const DummySource source(SmallDeepSeekV4(DeepSeekV4Storage::kPlain, DeepSeekV4Storage::kPlain),
                           3);
  std::vector<int32_t> table(50 * 2);
  ASSERT_TRUE(
      source
          .Read("layers.0.ffn.gate.tid2eid", {Range{0, 50}, Range{0, 2}}, DType::kI32, table.data())
          .ok());
  std::set<int32_t> seen;
  for (size_t i = 0; i < table.size(); i += 2) {
    EXPECT_NE(table[i], table[i + 1]);
    seen.insert({table[i], table[i + 1]});
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST(DummySource, RawBytesHoweverTheyAreSplit) {
  const DummySource source(SmallDeepSeekV4(DeepSeekV4Storage::kPlain, DeepSeekV4Storage::kMxFp4),
                           3);
  const TensorInfo info = *source.Find("layers.0.ffn.experts.1.w2.weight");  // I8 [96, 32]
  const std::vector<uint8_t> whole = ReadBytes<uint8_t>(source, info);
  std::vector<uint8_t> part(7 * 5);
  ASSERT_TRUE(source.ReadRaw(info.name, {Range{80, 87}, Range{3, 8}}, part.data()).ok());
  for (size_t r = 0; r < 7; ++r) {
    for (size_t c = 0; c < 5; ++c) ASSERT_EQ(part[r * 5 + c], whole[(80 + r) * 32 + 3 + c]);
  }
  const TensorInfo plain = *source.Find("layers.0.attn.wkv.weight");  // BF16 [64, 96]
  const std::vector<uint16_t> bits = ReadBytes<uint16_t>(source, plain);
  const std::vector<float> values = ReadAll(source, plain.name);
  for (size_t i = 0; i < bits.size(); ++i) ASSERT_EQ(ToFloat(BFloat16{bits[i]}), values[i]);
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
  EXPECT_EQ(source.Read("model.norm.weight", {Range{0, 3}}, DType::kI32, out).message(),
            "dummy weights: tensor 'model.norm.weight' of BF16 cannot be read as int32");
  const DummySource fp8({{.name = "w", .dtype = FileDType::kF8E4M3, .shape = {4}}}, 1);
  EXPECT_EQ(fp8.Read("w", {Range{0, 3}}, DType::kF32, out).message(),
            "dummy weights: tensor 'w' of F8_E4M3 cannot be read as float32");
}

}  // namespace
}  // namespace millrace
