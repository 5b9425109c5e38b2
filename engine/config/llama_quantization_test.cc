#include "engine/config/llama_quantization.h"

#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/core/status.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Of config.json's quantization_config and, where it is not null, hf_quant_config.json.
absl::StatusOr<std::optional<Fp8Config>> Read(const Json& quantization,
                                              const Json& hf_quant = nullptr) {
  Json root = {{"model_type", "llama"}};
  if (!quantization.is_null()) root["quantization_config"] = quantization;
  JsonFields fields(root, "config.json");
  if (hf_quant.is_null()) return ReadLlamaQuantization(fields, nullptr);
  JsonFields hf_fields(hf_quant, "hf_quant_config.json");
  return ReadLlamaQuantization(fields, &hf_fields);
}

const std::string kUp = "model.layers.0.mlp.up_proj";

Fp8Scheme SchemeOf(const Json& quantization, const Json& hf_quant = nullptr) {
  const auto config = Read(quantization, hf_quant);
  EXPECT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config.ok() && config->has_value());
  if (!config.ok() || !config->has_value()) return {};
  EXPECT_FALSE((*config)->SchemeOf("lm_head").has_value());
  return (*config)->SchemeOf(kUp).value();
}

Json Block() {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {128, 128}},
          {"modules_to_not_convert", {"lm_head"}}};
}

Json Group(const char* strategy, const char* inputs, bool dynamic) {
  return {{"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}, {"symmetric", true}}},
          {"input_activations",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", inputs}, {"dynamic", dynamic}}},
          {"output_activations", nullptr}};
}

Json CompressedTensors(const Json& group) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", {"lm_head"}},
          {"kv_cache_scheme", nullptr}};
}

Json ModelOpt(const char* algorithm = "FP8") {
  return {{"quant_method", "modelopt"}, {"quant_algo", algorithm}, {"ignore", {"lm_head"}}};
}

Json HfQuant(const char* algorithm = "FP8") {
  return {{"producer", {{"name", "modelopt"}}},
          {"quantization",
           {{"quant_algo", algorithm},
            {"kv_cache_quant_algo", "FP8"},
            {"exclude_modules", {"lm_head"}}}}};
}

template <typename Value>
Json With(Json json, const char* pointer, const Value& value) {
  json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(LlamaQuantization, NoneWhereFilesAreSilent) { EXPECT_FALSE(Read(nullptr)->has_value()); }

TEST(LlamaQuantization, EachForm) {
  EXPECT_EQ(SchemeOf(Block()), (Fp8Scheme{Fp8WeightScale::kBlock, "weight_scale_inv", false}));
  Json tensor = Block();
  tensor.erase("weight_block_size");
  EXPECT_EQ(SchemeOf(tensor), (Fp8Scheme{Fp8WeightScale::kTensor, "weight_scale", false}));
  tensor["activation_scheme"] = "static";
  EXPECT_EQ(SchemeOf(tensor), (Fp8Scheme{Fp8WeightScale::kTensor, "weight_scale", true}));
  EXPECT_EQ(SchemeOf(CompressedTensors(Group("channel", "token", true))),
            (Fp8Scheme{Fp8WeightScale::kChannel, "weight_scale", false}));
  EXPECT_EQ(SchemeOf(CompressedTensors(Group("tensor", "tensor", false))),
            (Fp8Scheme{Fp8WeightScale::kTensor, "weight_scale", true}));
  Json blocks = Group("block", "group", true);
  blocks["weights"]["block_structure"] = {128, 128};
  EXPECT_EQ(SchemeOf(CompressedTensors(blocks)),
            (Fp8Scheme{Fp8WeightScale::kBlock, "weight_scale", false}));
  EXPECT_EQ(SchemeOf(ModelOpt()), (Fp8Scheme{Fp8WeightScale::kTensor, "weight_scale", true}));
  EXPECT_EQ(SchemeOf(nullptr, HfQuant("fp8")), SchemeOf(ModelOpt(), HfQuant()));
  EXPECT_EQ(SchemeOf(ModelOpt("FP8_PER_CHANNEL_PER_TOKEN")),
            (Fp8Scheme{Fp8WeightScale::kChannel, "weight_scale", false}));
}

bool HasCache(const Json& quantization, const Json& hf_quant = nullptr) {
  const auto config = Read(quantization, hf_quant);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() && (*config)->cache;
}

TEST(LlamaQuantization, TheCacheThatItWasMadeFor) {
  EXPECT_FALSE(HasCache(ModelOpt()));
  EXPECT_TRUE(HasCache(With(ModelOpt(), "/kv_cache_quant_algo", "fp8")));
  EXPECT_FALSE(HasCache(With(ModelOpt(), "/kv_cache_quant_algo", "NVFP4")));
  EXPECT_FALSE(HasCache(With(ModelOpt(), "/kv_cache_quant_algo", nullptr)));
  EXPECT_TRUE(HasCache(ModelOpt(), HfQuant()));
  EXPECT_TRUE(HasCache(nullptr, HfQuant()));
  const Json silent = With(HfQuant(), "/quantization/kv_cache_quant_algo", nullptr);
  EXPECT_FALSE(HasCache(nullptr, silent));
  const Json scheme = {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}};
  EXPECT_TRUE(HasCache(With(ModelOpt(), "/kv_cache_scheme", scheme), silent));
  const Json channel = CompressedTensors(Group("channel", "token", true));
  EXPECT_FALSE(HasCache(channel));
  const Json with = With(channel, "/kv_cache_scheme", scheme);
  EXPECT_TRUE(HasCache(with));
  EXPECT_FALSE(HasCache(With(with, "/kv_cache_scheme/num_bits", 4)));
  EXPECT_FALSE(HasCache(With(with, "/kv_cache_scheme/type", "int")));
  EXPECT_FALSE(HasCache(With(with, "/kv_cache_scheme/dynamic", true)));
  EXPECT_FALSE(HasCache(With(with, "/kv_cache_scheme/dynamic", "local")));
  EXPECT_TRUE(HasCache(With(with, "/kv_cache_scheme/strategy", "attn_head")));
  EXPECT_FALSE(HasCache(With(with, "/kv_cache_scheme/strategy", "token")));
  EXPECT_FALSE(HasCache(Block()));
}

// ModelOpt writes an algorithm's name where it is not FP8, AutoFP8 "static".
TEST(LlamaQuantization, CacheSchemesThatAreNames) {
  EXPECT_TRUE(HasCache(With(ModelOpt(), "/kv_cache_scheme", "FP8")));
  EXPECT_FALSE(HasCache(With(ModelOpt(), "/kv_cache_scheme", "NVFP4")));
  Json tensor = {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
  EXPECT_FALSE(HasCache(tensor));
  EXPECT_TRUE(HasCache(With(tensor, "/kv_cache_scheme", "static")));
}

TEST(LlamaQuantization, WhichModules) {
  Json block = Block();
  block["modules_to_not_convert"] = {"lm_head", "model.layers.0.mlp.up_proj"};
  block["ignored_layers"] = {"layers.2"};
  const Fp8Config blocks = **Read(block);
  EXPECT_FALSE(blocks.SchemeOf(kUp).has_value());
  EXPECT_TRUE(blocks.SchemeOf("model.layers.0.mlp.down_proj").has_value());
  EXPECT_FALSE(blocks.SchemeOf("model.layers.2.self_attn.q_proj").has_value());
  EXPECT_TRUE(blocks.SchemeOf("model.layers.22.self_attn.q_proj").has_value());

  Json grouped = CompressedTensors(Group("channel", "token", true));
  grouped["config_groups"]["group_0"]["targets"] = {"re:.*mlp.*"};
  grouped["config_groups"]["group_1"] = Group("tensor", "tensor", false);
  grouped["config_groups"]["group_1"]["targets"] = {"re:.*self_attn\\.[qkv]_proj$"};
  grouped["ignore"] = {"lm_head", "re:.*layers\\.1\\..*"};
  const Fp8Config groups = **Read(grouped);
  EXPECT_EQ(groups.SchemeOf(kUp)->weight, Fp8WeightScale::kChannel);
  EXPECT_EQ(groups.SchemeOf("model.layers.0.self_attn.q_proj")->weight, Fp8WeightScale::kTensor);
  EXPECT_FALSE(groups.SchemeOf("model.layers.0.self_attn.o_proj").has_value());
  EXPECT_FALSE(groups.SchemeOf("model.layers.1.mlp.up_proj").has_value());

  Json globs = ModelOpt();
  globs["ignore"] = {"lm_head", "model.layers.0.mlp*", "*.o_proj"};
  const Fp8Config modelopt = **Read(globs);
  EXPECT_FALSE(modelopt.SchemeOf(kUp).has_value());
  EXPECT_FALSE(modelopt.SchemeOf("model.layers.1.self_attn.o_proj").has_value());
  EXPECT_TRUE(modelopt.SchemeOf("model.layers.1.self_attn.v_proj").has_value());
}

void ExpectRefused(absl::StatusCode code, const std::string& message, const Json& quantization,
                   const Json& hf_quant = nullptr) {
  const absl::Status status = Read(quantization, hf_quant).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
}

TEST(LlamaQuantization, RefusesOthersByName) {
  constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
  ExpectRefused(kUnsupported, "quant_method: 'awq' is not supported", {{"quant_method", "awq"}});
  ExpectRefused(kUnsupported, "weight_block_size: supported is [128, 128] alone",
                With(Block(), "/weight_block_size", Json{64, 128}));
  ExpectRefused(kUnsupported, "activation_scheme: 'static' with blocks",
                With(Block(), "/activation_scheme", "static"));
  ExpectRefused(kUnsupported, "activation_scheme: 'both'",
                With(Block(), "/activation_scheme", "both"));
  ExpectRefused(kUnsupported, "fmt: 'e5m2'", With(Block(), "/fmt", "e5m2"));
  ExpectRefused(kUnsupported, "scale_fmt", With(Block(), "/scale_fmt", "ue8m0"));
  const Json channel = CompressedTensors(Group("channel", "token", true));
  ExpectRefused(kUnsupported, "format: 'pack-quantized'",
                With(channel, "/format", "pack-quantized"));
  ExpectRefused(kUnsupported, "'group_0': weights: num_bits: 4",
                With(channel, "/config_groups/group_0/weights/num_bits", 4));
  ExpectRefused(kUnsupported, "weights: type: 'int'",
                With(channel, "/config_groups/group_0/weights/type", "int"));
  ExpectRefused(kUnsupported, "symmetric: false",
                With(channel, "/config_groups/group_0/weights/symmetric", false));
  ExpectRefused(kUnsupported, "strategy: 'group'",
                With(channel, "/config_groups/group_0/weights/strategy", "group"));
  ExpectRefused(kUnsupported, "static scales of 'token'",
                With(channel, "/config_groups/group_0/input_activations/dynamic", false));
  ExpectRefused(kUnsupported, "dynamic scales of 'group'",
                With(channel, "/config_groups/group_0/input_activations/strategy", "group"));
  ExpectRefused(kUnsupported, "weights alone",
                With(channel, "/config_groups/group_0/input_activations", nullptr));
  ExpectRefused(kUnsupported, "quant_algo: 'NVFP4'", ModelOpt("NVFP4"));
  ExpectRefused(kUnsupported, "hf_quant_config.json: quantization: quant_algo: 'NVFP4'", nullptr,
                HfQuant("nvfp4"));
}

TEST(LlamaQuantization, RefusesMalformedFiles) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefused(kInvalid, "quantization_config: 4", 4);
  ExpectRefused(kInvalid, "quant_algo: contradicts hf_quant_config.json",
                ModelOpt("FP8_PER_CHANNEL_PER_TOKEN"), HfQuant());
  ExpectRefused(kInvalid, "'fp8' contradicts hf_quant_config.json", Block(), HfQuant());
  ExpectRefused(kInvalid, "hf_quant_config.json: quantization: is missing", nullptr,
                Json::object());
  const Json channel = CompressedTensors(Group("channel", "token", true));
  ExpectRefused(kInvalid, "kv_cache_scheme: num_bits",
                With(channel, "/kv_cache_scheme", Json{{"num_bits", "8"}}));
  ExpectRefused(kInvalid, "kv_cache_quant_algo", With(ModelOpt(), "/kv_cache_quant_algo", 8));
  ExpectRefused(kInvalid, "kv_cache_scheme", With(ModelOpt(), "/kv_cache_scheme", 8));
  ExpectRefused(kInvalid, "ignore: 're:(' is no regular expression",
                With(channel, "/ignore", Json{"re:("}));
  ExpectRefused(kInvalid, "config_groups: is missing", With(channel, "/config_groups", nullptr));
  ExpectRefused(kInvalid, "weights: is missing",
                With(channel, "/config_groups/group_0/weights", nullptr));
  ExpectRefused(kInvalid, "num_bits",
                With(channel, "/config_groups/group_0/weights/num_bits", "8"));
  ExpectRefused(kInvalid, "'group_0': is not an object",
                With(channel, "/config_groups/group_0", 3));
}

}  // namespace
}  // namespace millrace
