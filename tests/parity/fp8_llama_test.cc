// LLaMA from FP8 weights, in each form that checkpoints have, on the CPU: against the same numbers
// as floats, and against the formulas with activations rounded.
#include "tests/parity/fp8_llama.h"

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/config/parse.h"
#include "engine/models/load_model.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/local_executor.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/parity/cache_codes.h"
#include "tests/parity/checkpoint_writer.h"
#include "tests/parity/dequantised_checkpoint.h"
#include "tests/parity/engine_runs.h"
#include "tests/parity/tiny_llama.h"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Logits = std::vector<std::vector<float>>;

// Two ranks cut k and v inside blocks of scales, q between them, and the MLP into 256 and 16
// columns, so that up begins inside a block; inputs end in part of a block.
TinyLlamaShape Shape() {
  return {
      .hidden = 160, .intermediate = 272, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 64};
}

struct Way {
  const char* name;
  int32_t ranks;
  int32_t chunk;
};
constexpr Way kWays[] = {{"one", 1, 0}, {"chunks", 1, 7}, {"two", 2, 0}, {"two, chunks", 2, 5}};

// What rounded activations cost of the logits at most: weights are large and random here. Measured
// 0.14 to 0.16, with ModelOpt's given scale 0.32.
constexpr double kLost = 0.4;
// And of that, what sums in f32 make differ from the formulas, where they land on the other side of
// a rounding: at most 0.036 where an engine scales an input by itself, 1e-6 by a given scale.
constexpr double kMissed = 0.1;

// `cache`: empty: f32.
Logits LogitsOf(const std::string& dir, const Way& way, Numerics numerics, bool quantize = false,
                std::optional<DType> cache = {}) {
  const std::unique_ptr<Engine> engine = Start(dir, {.ranks = way.ranks,
                                                     .chunk = way.chunk,
                                                     .kv_dtype = cache,
                                                     .numerics = numerics,
                                                     .quantize = quantize});
  if (engine == nullptr) return {};
  const std::vector<Output> outputs = RunAll(*engine, {Greedy(Prompt(40, 5), 4, true)});
  EXPECT_TRUE(outputs[0].status.ok()) << outputs[0].status;
  return outputs[0].logits;
}

class Fp8LlamaTest : public testing::TestWithParam<QuantTarget> {};

// Bit for bit: codes and scales are cut and put together as the numbers that they stand for.
TEST_P(Fp8LlamaTest, WidenedIsItsDequantisedSelf) {
  const Fp8Llama llama = MakeFp8Llama(Shape(), GetParam(), "widened");
  const std::string twin = Folder(llama.twin, "widened_twin_" + Fp8FormatName(GetParam()));
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const Logits got = LogitsOf(llama.dir, way, Numerics::kReference);
    ASSERT_EQ(got.size(), 40u);
    EXPECT_EQ(got, LogitsOf(twin, way, Numerics::kReference));
    EXPECT_NE(got, LogitsOf(llama.plain, way, Numerics::kReference)) << "was anything quantised?";
  }
}

// The formulas in double precision with the same activations rounded, part by part of the ranks.
TEST_P(Fp8LlamaTest, ServedIsTheFormulas) {
  const Fp8Llama llama = MakeFp8Llama(Shape(), GetParam(), "served");
  TinyLlama twin = llama.twin;
  twin.round_inputs = nullptr;
  const std::vector<std::vector<double>> unrounded = twin.Logits(Prompt(40, 5));
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    RoundAsRanks(GetParam(), way.ranks, twin);
    const std::vector<std::vector<double>> want = twin.Logits(Prompt(40, 5));
    const Logits got = LogitsOf(llama.dir, way, Numerics::kServing);
    ASSERT_EQ(got.size(), 40u);
    const double error = Rms(Difference(want, got)), rounding = Rms(Difference(unrounded, got));
    EXPECT_LT(error, kMissed * rounding) << rounding;
    EXPECT_LT(rounding, kLost * Rms(want));
    EXPECT_GT(rounding, 0.005 * Rms(want)) << "was anything rounded?";
  }
}

// Rank 0 adds those of o_proj and down_proj; the others are cut with their rows.
TEST_P(Fp8LlamaTest, Biases) {
  TinyLlamaShape shape = Shape();
  shape.attention_bias = shape.mlp_bias = true;
  const Fp8Llama llama = MakeFp8Llama(shape, GetParam(), "biased");
  TinyLlama twin = llama.twin;
  twin.round_inputs = nullptr;
  const std::vector<std::vector<double>> unrounded = twin.Logits(Prompt(40, 5));
  for (const Way& way : {kWays[0], kWays[2]}) {
    RoundAsRanks(GetParam(), way.ranks, twin);
    const Logits got = LogitsOf(llama.dir, way, Numerics::kServing);
    EXPECT_LT(Rms(Difference(twin.Logits(Prompt(40, 5)), got)),
              kMissed * Rms(Difference(unrounded, got)))
        << way.name;
  }
}

TEST_P(Fp8LlamaTest, MemoryIsTheCodes) {
  const TinyLlamaShape s = Shape();
  const Fp8Llama llama = MakeFp8Llama(s, GetParam(), "memory");
  const auto executor =
      LocalExecutor::Create(ExecutorConfig(llama.dir, {.numerics = Numerics::kServing}));
  ASSERT_TRUE(executor.ok()) << executor.status();
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, h = s.hidden;
  const int64_t codes = h * (q + 2 * kv) + q * h + 3 * h * s.intermediate;
  const auto blocks = [](int64_t n, int64_t k) { return (n + 127) / 128 * ((k + 127) / 128); };
  int64_t scales = (q + 2 * kv) + h + 2 * s.intermediate + h;
  if (GetParam() == QuantTarget::kFp8) {
    scales = blocks(q, h) + 2 * blocks(kv, h) + blocks(h, q) + 2 * blocks(s.intermediate, h) +
             blocks(h, s.intermediate);
  } else if (GetParam() == QuantTarget::kFp8ModelOpt) {
    scales += 4;
  }
  const int64_t floats = 2 * int64_t{s.vocab} * h + (2 * s.layers + 1) * h;
  EXPECT_EQ((*executor)->memory()[0].weight_bytes, s.layers * (codes + 4 * scales) + 4 * floats);
}

INSTANTIATE_TEST_SUITE_P(Formats, Fp8LlamaTest,
                         testing::Values(QuantTarget::kFp8, QuantTarget::kFp8Ct,
                                         QuantTarget::kFp8CtTensor, QuantTarget::kFp8ModelOpt),
                         [](const auto& info) { return Fp8FormatName(info.param); });

// --quantization fp8 makes the numbers that our tool writes.
TEST(Fp8AtLoad, IsTheCheckpointOfChannels) {
  const Fp8Llama llama = MakeFp8Llama(Shape(), QuantTarget::kFp8Ct, "at_load");
  const Logits served = LogitsOf(llama.dir, kWays[0], Numerics::kServing);
  ASSERT_EQ(served.size(), 40u);
  EXPECT_EQ(LogitsOf(llama.plain, kWays[0], Numerics::kServing, true), served);
  EXPECT_EQ(LogitsOf(llama.dir, kWays[0], Numerics::kServing, true), served) << "stays as it is";
  // Two ranks have scales of their own for their columns of o_proj and down_proj.
  const Logits two = LogitsOf(llama.plain, kWays[2], Numerics::kServing, true);
  const std::vector<std::vector<double>> want = llama.twin.Logits(Prompt(40, 5));
  EXPECT_LT(Rms(Difference(want, two)), kLost * Rms(want));
}

std::string Message(const std::string& dir, int32_t ranks = 1) {
  const auto executor =
      LocalExecutor::Create(ExecutorConfig(dir, {.ranks = ranks, .numerics = Numerics::kServing}));
  return executor.ok() ? "" : std::string(executor.status().message());
}

// A checkpoint of block FP8 put together by hand, of powers of two as scales: from `scale` to eight
// times as much, by block.
struct ByHand {
  TinyLlama model{Shape(), 3};
  Json quantization = {{"quant_method", "fp8"},
                       {"weight_block_size", {128, 128}},
                       {"modules_to_not_convert", {"lm_head", "model.layers.1.mlp"}}};
  std::map<std::string, WrittenTensor> tensors = {};

  explicit ByHand(float scale) {
    for (const auto& [name, tensor] : model.tensors()) {
      tensors[name] = tensor;
      const bool fp8 = absl::StrContains(name, "_proj") && !absl::StrContains(name, "layers.1.mlp");
      if (!fp8) continue;
      WrittenTensor& codes = tensors[name];
      codes.type = WrittenTensor::Type::kF8E4M3;
      const int64_t rows = (tensor.shape[0] + 127) / 128, cols = (tensor.shape[1] + 127) / 128;
      WrittenTensor& scales = tensors[name + "_scale_inv"];
      scales = {.shape = {rows, cols}, .type = WrittenTensor::Type::kF32};
      for (int64_t i = 0; i < rows * cols; ++i) {
        scales.values.push_back(std::ldexp(scale, static_cast<int>((3 * i + i / 4) % 4)));
      }
      for (int64_t i = 0; i < tensor.shape[0] * tensor.shape[1]; ++i) {
        const int64_t block = i / tensor.shape[1] / 128 * cols + i % tensor.shape[1] / 128;
        codes.values[static_cast<size_t>(i)] /= scales.values[static_cast<size_t>(block)];
      }
    }
  }

  std::string Write(const std::string& name) const {
    const std::string dir = Folder(model, name);
    Json config = Json::parse(ConfigOf(dir));
    config["quantization_config"] = quantization;
    WriteCheckpoint(dir, config.dump(), tensors);
    return dir;
  }
};

// Excluded modules stay as they are.
TEST(Fp8ByHand, ExcludedModulesArePlain) {
  const std::string dir = ByHand(0x1p-8f).Write("by_hand");
  const TinyLlama twin = Dequantised(Shape(), dir);
  EXPECT_EQ(LogitsOf(dir, kWays[2], Numerics::kReference),
            LogitsOf(Folder(twin, "by_hand_twin"), kWays[2], Numerics::kReference));
  const std::vector<std::vector<double>> want = twin.Logits(Prompt(40, 5));
  const double error = Rms(Difference(want, LogitsOf(dir, kWays[2], Numerics::kServing)));
  EXPECT_LT(error, kLost * Rms(want));
  EXPECT_GT(error, 0.002 * Rms(want));
}

using Tensors = std::map<std::string, WrittenTensor>;

// The folder with other tensors, as `edit` leaves them.
std::string Edited(const Fp8Llama& llama, const std::string& name,
                   const std::function<void(Tensors&)>& edit) {
  Tensors tensors = StoredTensors(llama.dir);
  edit(tensors);
  const std::string dir = MakeFolder(name);
  WriteCheckpoint(dir, ConfigOf(llama.dir), tensors);
  return dir;
}

// q, k and v are one product, of one input, and gate and up are: whichever has the largest scale of
// inputs, it counts for all.
TEST(Fp8ModelOpt, TheLargestInputScaleCounts) {
  const Fp8Llama llama = MakeFp8Llama(Shape(), QuantTarget::kFp8ModelOpt, "inputs");
  const std::string dir = Edited(llama, "inputs_unlike", [](Tensors& tensors) {
    const auto scale = [&](const std::string& projection, float by) {
      tensors.at("model.layers." + projection + ".input_scale").values[0] *= by;
    };
    scale("0.self_attn.q_proj", 0.55f);
    scale("0.self_attn.v_proj", 0.7f);
    scale("0.mlp.gate_proj", 0.6f);
    scale("1.self_attn.k_proj", 0.6f);
    scale("1.self_attn.q_proj", 0.8f);
    scale("1.mlp.up_proj", 0.7f);
  });
  TinyLlama exact = llama.twin;
  exact.round_inputs = nullptr;
  const std::vector<std::vector<double>> want = llama.twin.Logits(Prompt(40, 5));
  const std::vector<std::vector<double>> unrounded = exact.Logits(Prompt(40, 5));
  for (const Way& way : {kWays[0], kWays[2]}) {
    const Logits got = LogitsOf(dir, way, Numerics::kServing);
    EXPECT_LT(Rms(Difference(want, got)), kMissed * Rms(Difference(unrounded, got))) << way.name;
  }
}

// Each head of keys and of values has a scale of its own, which goes where its head goes.
TEST(Fp8ModelOpt, AnFp8CacheWithScales) {
  Fp8Llama llama = MakeFp8Llama(Shape(), QuantTarget::kFp8ModelOpt, "cache");
  const HeadScales scales = UnlikeScales(Shape(), 0.075f);
  const std::string dir = Edited(llama, "cache_scales", [&scales](Tensors& tensors) {
    for (const auto& [name, tensor] : ScaleTensors(scales)) tensors[name] = tensor;
  });
  const std::string twin = Folder(Dequantised(Shape(), dir), "cache_scales_twin");
  const std::vector<std::vector<double>> plain_cache = llama.twin.Logits(Prompt(40, 5));
  llama.twin.round_cache = InCodes(scales);
  const std::vector<std::vector<double>> want = llama.twin.Logits(Prompt(40, 5));
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const auto logits = [&way](const std::string& of, Numerics numerics) {
      return LogitsOf(of, way, numerics, false, DType::kU8);
    };
    EXPECT_EQ(logits(dir, Numerics::kReference), logits(twin, Numerics::kReference));
    const Logits got = logits(dir, Numerics::kServing);
    ASSERT_EQ(got.size(), 40u);
    const double cost = Rms(Difference(plain_cache, got));
    EXPECT_LT(Rms(Difference(want, got)), kMissed * cost) << cost;
    EXPECT_GT(cost, 0.01 * Rms(want)) << "was the cache FP8?";
  }
}

TEST(Fp8ByHand, ErrorsNameTensorAndFile) {
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  const ByHand good(0x1p-8f);
  const auto message = [&](const std::string& name, auto edit) {
    ByHand bad = good;
    edit(bad);
    return Message(bad.Write("bad_" + name));
  };
  const auto expect = [](const std::string& got, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_TRUE(absl::StrContains(got, part)) << got << "\nwant " << part;
    }
  };
  EXPECT_EQ(message("not", [](ByHand&) {}), "");
  expect(message("missing", [&](ByHand& b) { b.tensors.erase(up + "_scale_inv"); }),
         {"bad_missing", "no tensor '" + up + "_scale_inv'"});
  expect(message("shape",
                 [&](ByHand& b) {
                   b.tensors[up + "_scale_inv"] = {.shape = {1, 2}, .values = {1, 1}};
                 }),
         {"bad_shape/model.safetensors", up + "_scale_inv' has shape [1, 2], want [3, 2]"});
  expect(message("plain", [&](ByHand& b) { b.tensors[up] = b.model.tensors().at(up); }),
         {"bad_plain/model.safetensors", up + "' is stored as BF16, want F8_E4M3"});
  expect(message("nan", [&](ByHand& b) { b.tensors[up + "_scale_inv"].values[1] = NAN; }),
         {"bad_nan/model.safetensors", up + "_scale_inv' holds nan, want a finite scale"});
  expect(message("excluded",
                 [&](ByHand& b) { b.quantization["modules_to_not_convert"] = {"layers.0.mlp"}; }),
         {"bad_excluded/model.safetensors", "is stored as"});
  expect(
      message("halves", [&](ByHand& b) { b.quantization["modules_to_not_convert"] = {"up_proj"}; }),
      {"model.layers.0.mlp.gate_proj and model.layers.0.mlp.up_proj different forms"});
}

TEST(Fp8ByHand, CutsInsideBlocksAreRefused) {
  TinyLlamaShape shape = Shape();
  shape.head_dim = 32;
  const Fp8Llama llama = MakeFp8Llama(shape, QuantTarget::kFp8, "cut");
  EXPECT_EQ(Message(llama.dir), "");
  const std::string message = Message(llama.dir, 2);
  EXPECT_TRUE(absl::StrContains(message, "o_proj.weight': columns [")) << message;
  EXPECT_TRUE(absl::StrContains(message, "would cut a block of 128")) << message;
  EXPECT_EQ(Message(MakeFp8Llama(shape, QuantTarget::kFp8Ct, "cut").dir, 2), "");
}

// --kv-cache-dtype auto.
TEST(Fp8ModelOpt, TheCacheThatTheCheckpointWasMadeFor) {
  const Fp8Llama llama = MakeFp8Llama(Shape(), QuantTarget::kFp8ModelOpt, "automatic");
  const auto automatic = [](const std::string& dir, Numerics numerics) {
    return DefaultCacheDType(*LoadModelConfig(dir), numerics, DType::kBF16);
  };
  EXPECT_EQ(automatic(llama.dir, Numerics::kServing), DType::kBF16);
  Json config = Json::parse(ConfigOf(llama.dir));
  config["quantization_config"]["kv_cache_quant_algo"] = "FP8";
  const std::string dir = MakeFolder("automatic_cache");
  WriteCheckpoint(dir, config.dump(), StoredTensors(llama.dir));
  EXPECT_EQ(automatic(dir, Numerics::kServing), DType::kU8);
  EXPECT_EQ(automatic(dir, Numerics::kReference), DType::kBF16);
}

}  // namespace
}  // namespace millrace
