#include "engine/config/deepseek_v4_config.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/config/parse.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;
using enum DeepSeekV4Attention;
using enum DeepSeekV4Router;
using enum DeepSeekV4Storage;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// Four layers, every value different from its neighbours'.
Json Common() {
  return Json::parse(R"({
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": 320,
    "torch_dtype": "bfloat16", "hidden_size": 192, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 1, "head_dim": 64, "q_lora_rank": 48,
    "o_groups": 3, "o_lora_rank": 24, "sliding_window": 16, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-3, "index_n_heads": 7, "index_head_dim": 40, "index_topk": 5,
    "moe_intermediate_size": 128, "n_routed_experts": 9, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "routed_scaling_factor": 2.5, "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": true, "swiglu_limit": 1.5, "hidden_act": "silu", "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 0.02, "bos_token_id": 0, "eos_token_id": 1})");
}

Json Released() {
  Json config = Common();
  config.merge_patch(Json::parse(R"({
    "qk_rope_head_dim": 16, "num_hash_layers": 1, "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1, "compress_ratios": [0, 4, 128, 4, 0],
    "rope_theta": 10000.0, "compress_rope_theta": 160000.0,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64,
                     "beta_fast": 32, "beta_slow": 2}})"));
  return config;
}

Json Transformers() {
  Json config = Common();
  config.merge_patch(Json::parse(R"({
    "partial_rotary_factor": 0.25,
    "layer_types": ["sliding_attention", "compressed_sparse_attention",
                    "heavily_compressed_attention", "compressed_sparse_attention"],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "rope_parameters": {
      "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
      "compress": {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 16, "beta_fast": 32,
                   "original_max_position_embeddings": 64, "beta_slow": 2,
                   "attention_factor": 1.0}}})"));
  return config;
}

constexpr const char* kFp8 = R"({"quantization_config": {
    "quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "activation_scheme": "dynamic",
    "weight_block_size": [128, 128]}})";

constexpr const char* kCompressedTensors = R"({"quantization_config": {
    "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"],
       "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}},
    "ignore": ["lm_head", "re:.*attn.*"]}})";

Json Patched(Json config, const std::string& patch) {
  config.merge_patch(Json::parse(patch));  // null removes
  return config;
}

Json Fp8(const std::string& patch = "{}") { return Patched(Patched(Released(), kFp8), patch); }

absl::StatusOr<DeepSeekV4Config> Parse(const Json& config,
                                       const std::optional<std::string>& sibling = std::nullopt) {
  const std::string text = config.dump();
  std::optional<ConfigText> hf_quant;
  if (sibling.has_value()) hf_quant = ConfigText{*sibling, "DIR/hf_quant_config.json"};
  return ParseDeepSeekV4Config({text, "DIR/config.json"}, hf_quant);
}

std::vector<DeepSeekV4Storage> Experts(const DeepSeekV4Config& config) {
  std::vector<DeepSeekV4Storage> experts;
  for (const DeepSeekV4Layer& layer : config.layers) experts.push_back(layer.experts);
  return experts;
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string message(status.message());
  EXPECT_EQ(message.rfind("DIR/", 0), 0u) << message;
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
  }
}

TEST(DeepSeekV4Config, EveryFieldIsReadInBothSpellings) {
  for (const Json& json : {Released(), Transformers()}) {
    const absl::StatusOr<DeepSeekV4Config> config = Parse(json);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->vocab_size, 320);
    EXPECT_EQ(config->hidden_size, 192);
    EXPECT_EQ(config->num_heads, 6);
    EXPECT_EQ(config->head_dim, 64);
    EXPECT_EQ(config->rope_dim, 16);
    EXPECT_EQ(config->q_lora_rank, 48);
    EXPECT_EQ(config->o_groups, 3);
    EXPECT_EQ(config->o_lora_rank, 24);
    EXPECT_EQ(config->sliding_window, 16);
    EXPECT_EQ(config->max_position, 4096);
    EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-3);
    EXPECT_EQ(config->window_rope, (DeepSeekV4Rope{.theta = 1e4}));
    EXPECT_EQ(config->compress_rope, (DeepSeekV4Rope{.theta = 1.6e5,
                                                     .yarn = true,
                                                     .factor = 16,
                                                     .original_max_position = 64,
                                                     .beta_fast = 32,
                                                     .beta_slow = 2}));
    EXPECT_EQ(config->index_heads, 7);
    EXPECT_EQ(config->index_head_dim, 40);
    EXPECT_EQ(config->index_topk, 5);
    EXPECT_EQ(config->expert_width, 128);
    EXPECT_EQ(config->num_experts, 9);
    EXPECT_EQ(config->experts_per_token, 2);
    EXPECT_DOUBLE_EQ(config->routed_scaling, 2.5);
    EXPECT_DOUBLE_EQ(config->swiglu_limit, 1.5);
    EXPECT_EQ(config->hc_streams, 4);
    EXPECT_EQ(config->hc_sinkhorn_iters, 20);
    EXPECT_DOUBLE_EQ(config->hc_eps, 0.02);
    EXPECT_EQ(config->layers, (std::vector<DeepSeekV4Layer>{{kWindow, kHash, kPlain},
                                                            {kCsa, kScore, kPlain},
                                                            {kHca, kScore, kPlain},
                                                            {kCsa, kScore, kPlain}}));
    EXPECT_EQ(config->quantization.dense, kPlain);
    EXPECT_EQ(config->dtype, DType::kBF16);
    EXPECT_EQ(config->bos_token_id, 0);
    EXPECT_EQ(config->eos_token_ids, std::vector<int32_t>{1});
  }
  EXPECT_EQ(Parse(Released())->num_mtp_layers, 1);
  EXPECT_EQ(Parse(Transformers())->num_mtp_layers, 0);
}

TEST(DeepSeekV4Config, SpellingsMayMixWhereTheyAgree) {
  Json both = Released();
  both.merge_patch(Transformers());
  EXPECT_TRUE(Parse(both).ok()) << Parse(both).status();
  // One object for the compressed layers, in the newer place.
  Json flat = Released();
  flat["rope_parameters"] = flat["rope_scaling"];
  flat.erase("rope_scaling");
  const absl::StatusOr<DeepSeekV4Config> config = Parse(flat);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_TRUE(config->compress_rope.yarn);
  // Neither a name for MTP layers nor their ratio is needed.
  EXPECT_TRUE(Parse(Patched(Released(), R"({"num_nextn_predict_layers": null,
                                            "compress_ratios": [0, 4, 128, 4]})"))
                  .ok());
  EXPECT_EQ(Parse(Patched(Released(), R"({"torch_dtype": null, "dtype": "float32"})"))->dtype,
            DType::kF32);
  // Hash layers need not come first where each is named.
  const absl::StatusOr<DeepSeekV4Config> late =
      Parse(Patched(Transformers(), R"({"mlp_layer_types": ["moe", "moe", "moe", "hash_moe"]})"));
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_EQ(late->layers[0].router, kScore);
  EXPECT_EQ(late->layers[3].router, kHash);
}

TEST(DeepSeekV4Config, Fp8ReleasedAndBase) {
  for (const char* patch : {"{}", R"({"expert_dtype": "fp4"})"}) {
    const absl::StatusOr<DeepSeekV4Config> released = Parse(Fp8(patch));
    ASSERT_TRUE(released.ok()) << released.status();
    EXPECT_EQ(released->quantization.dense, kFp8Block);
    EXPECT_EQ(released->quantization.block_scale, DeepSeekV4BlockScale::kE8M0);
    EXPECT_EQ(Experts(*released), std::vector<DeepSeekV4Storage>(4, kMxFp4));
  }
  const absl::StatusOr<DeepSeekV4Config> base = Parse(Fp8(R"({"expert_dtype": "fp8"})"));
  ASSERT_TRUE(base.ok()) << base.status();
  EXPECT_EQ(base->quantization.dense, kFp8Block);
  EXPECT_EQ(base->quantization.block_scale, DeepSeekV4BlockScale::kF32);
  EXPECT_EQ(Experts(*base), std::vector<DeepSeekV4Storage>(4, kFp8Block));
}

constexpr const char* kSibling = R"({"producer": {"name": "modelopt"}, "quantization": {
    "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": null, "group_size": 16,
    "moe_quant_algo": "NVFP4",
    "quantized_layers": {"layers.1.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16},
                         "model.layers.3.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}},
    "exclude_modules": ["mtp.*", "head"]}})";

TEST(DeepSeekV4Config, NvFp4BySiblingByConfigAndByBoth) {
  // An early upload: the switch alone in config.json, all else beside it.
  const Json early = Fp8(R"({"quantization_config": {"moe_quant_algo": "NVFP4"}})");
  Json whole = Json::parse(kSibling)["quantization"];
  whole["ignore"] = whole["exclude_modules"];
  whole.erase("exclude_modules");
  Json late = Fp8();
  late["quantization_config"].merge_patch(whole);
  for (const auto& config :
       {Parse(early, kSibling), Parse(Fp8(), kSibling), Parse(late), Parse(late, kSibling)}) {
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(Experts(*config), (std::vector<DeepSeekV4Storage>{kMxFp4, kNvFp4, kMxFp4, kNvFp4}));
    EXPECT_EQ(config->quantization.dense, kFp8Block);
    EXPECT_EQ(config->quantization.nvfp4_keys, DeepSeekV4NvFp4Keys::kModelOpt);
    EXPECT_EQ(config->quantization.nvfp4_ignore, (std::vector<std::string>{"head", "mtp.*"}));
  }
  const absl::StatusOr<DeepSeekV4Config> all = Parse(early);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(Experts(*all), std::vector<DeepSeekV4Storage>(4, kNvFp4));
}

TEST(DeepSeekV4Config, SiblingsThatContradict) {
  const Json early = Fp8(R"({"quantization_config": {"moe_quant_algo": "NVFP4"}})");
  ExpectRefused(Parse(Fp8(R"({"quantization_config": {"moe_quant_algo": "NVFP4",
                                                      "ignore": ["head"]}})"),
                      kSibling)
                    .status(),
                kInvalid, {"hf_quant_config.json", "exclude_modules", "contradicts"});
  ExpectRefused(
      Parse(Fp8(R"({"quantization_config": {"quantized_layers": {}}})"), kSibling).status(),
      kInvalid, {"hf_quant_config.json", "quantized_layers", "contradicts"});
  ExpectRefused(Parse(early, "{}").status(), kInvalid,
                {"hf_quant_config.json", "quantization", "missing"});
  ExpectRefused(Parse(early, R"({"quantization": {}})").status(), kInvalid,
                {"hf_quant_config.json", "moe_quant_algo", "missing"});
  ExpectRefused(Parse(Released(), kSibling).status(), kInvalid,
                {"config.json: quantization_config", "missing", "hf_quant_config.json"});
  ExpectRefused(Parse(Patched(Released(), kCompressedTensors), kSibling).status(), kInvalid,
                {"compressed-tensors", "contradicts", "hf_quant_config.json"});
  ExpectRefused(Parse(Fp8(R"({"expert_dtype": "fp8"})"), kSibling).status(), kInvalid,
                {"moe_quant_algo", "expert_dtype 'fp8'"});
  ExpectRefused(Parse(early, "{").status(), kInvalid, {"hf_quant_config.json", "JSON"});
}

TEST(DeepSeekV4Config, CompressedTensors) {
  const absl::StatusOr<DeepSeekV4Config> config =
      Parse(Patched(Transformers(), kCompressedTensors));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->quantization.dense, kPlain);
  EXPECT_EQ(config->quantization.nvfp4_keys, DeepSeekV4NvFp4Keys::kCompressedTensors);
  EXPECT_EQ(config->quantization.nvfp4_ignore,
            (std::vector<std::string>{"lm_head", "re:.*attn.*"}));
  EXPECT_EQ(Experts(*config), std::vector<DeepSeekV4Storage>(4, kNvFp4));
  const absl::StatusOr<DeepSeekV4Config> mixed = Parse(
      Patched(Patched(Transformers(), kCompressedTensors),
              R"({"quantization_config": {"format": "mixed-precision", "config_groups": {"group_1":
                   {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                "block_structure": [128, 128]}}}}})"));
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_EQ(mixed->quantization.dense, kFp8Block);
  EXPECT_EQ(mixed->quantization.block_scale, DeepSeekV4BlockScale::kF32);
  EXPECT_EQ(Experts(*mixed), std::vector<DeepSeekV4Storage>(4, kNvFp4));
}

struct Refusal {
  const char* patch;
  absl::StatusCode code;
  std::vector<std::string> words;
};

void CheckRefusals(const Json& base, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.patch);
    const absl::StatusOr<DeepSeekV4Config> config = Parse(Patched(base, refusal.patch));
    ASSERT_FALSE(config.ok());
    ExpectRefused(config.status(), refusal.code, refusal.words);
  }
}

TEST(DeepSeekV4Config, EveryFieldThatMustBeThereIsAskedFor) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "qk_rope_head_dim",
                          "q_lora_rank",
                          "o_groups",
                          "o_lora_rank",
                          "sliding_window",
                          "max_position_embeddings",
                          "rms_norm_eps",
                          "index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "moe_intermediate_size",
                          "n_routed_experts",
                          "n_shared_experts",
                          "num_experts_per_tok",
                          "routed_scaling_factor",
                          "swiglu_limit",
                          "hc_mult",
                          "hc_sinkhorn_iters",
                          "hc_eps",
                          "num_hash_layers",
                          "compress_ratios",
                          "rope_theta",
                          "compress_rope_theta",
                          "rope_scaling"}) {
    Json config = Released();
    ASSERT_EQ(config.erase(key), 1u) << key;
    ExpectRefused(Parse(config).status(), kInvalid,
                  {"config.json: " + std::string(key), "missing"});
  }
}

TEST(DeepSeekV4Config, OtherModelsByName) {
  CheckRefusals(
      Released(),
      {{R"({"model_type": "deepseek_v41"})", kUnimplemented, {"DeepSeek-V4.1"}},
       {R"({"architectures": ["DeepseekV41ForCausalLM"]})", kUnimplemented, {"DeepSeek-V4.1"}},
       {R"({"dspark_block_size": 5})", kUnimplemented, {"'dspark_block_size'", "DSpark"}},
       {R"({"architectures": ["DeepseekV3ForCausalLM"]})", kUnimplemented, {"DeepseekV3For"}},
       {R"({"model_type": "deepseek_v3"})", kInvalid, {"model_type: 'deepseek_v3'"}},
       {R"({"auto_map": {"AutoModel": "x.Y"}})", kUnimplemented, {"auto_map", "code"}}});
}

TEST(DeepSeekV4Config, SizesThatDoNotFit) {
  CheckRefusals(
      Released(),
      {{R"({"o_groups": 4})", kInvalid, {"o_groups: 4", "6 attention heads"}},
       {R"({"num_experts_per_tok": 10})", kInvalid, {"num_experts_per_tok: 10", "9"}},
       {R"({"qk_rope_head_dim": 15})", kInvalid, {"qk_rope_head_dim: 15", "even"}},
       {R"({"qk_rope_head_dim": 42})", kInvalid, {"qk_rope_head_dim: 42", "40"}},
       {R"({"partial_rotary_factor": 0.5})", kInvalid, {"qk_rope_head_dim: 16", "0.5", "32"}},
       {R"({"hidden_size": 0})", kInvalid, {"hidden_size: 0"}},
       {R"({"hc_mult": 9})", kInvalid, {"hc_mult: 9", "1 to 8"}},
       {R"({"hc_eps": "x"})", kInvalid, {"hc_eps", "number"}},
       {R"({"eos_token_id": 320})", kInvalid, {"eos_token_id: 320", "319"}},
       {R"({"num_hash_layers": 5})", kInvalid, {"num_hash_layers: 5", "0 to 4"}},
       {R"({"compress_ratios": [0, 4, 128]})", kInvalid, {"compress_ratios", "3", "4 layers"}},
       {R"({"compress_ratios": [0, 4, 128, 4, 0, 0]})", kInvalid, {"compress_ratios", "6"}},
       {R"({"compress_ratios": [0, 4, 128, 4, 4]})", kUnimplemented, {"MTP layer"}},
       {R"({"compress_ratios": [0, 2, 128, 4, 0]})", kUnimplemented, {"2 for layer 1"}},
       {R"({"compress_ratios": [0, "4", 128, 4, 0]})", kInvalid, {"compress_ratios", "integer"}}});
}

TEST(DeepSeekV4Config, ArithmeticThatIsNotBuilt) {
  CheckRefusals(
      Released(),
      {{R"({"scoring_func": "sigmoid"})", kUnimplemented, {"scoring_func: 'sigmoid'"}},
       {R"({"topk_method": "greedy"})", kUnimplemented, {"topk_method: 'greedy'"}},
       {R"({"hidden_act": "gelu"})", kUnimplemented, {"hidden_act: 'gelu'"}},
       {R"({"norm_topk_prob": false})", kUnimplemented, {"norm_topk_prob: false"}},
       {R"({"tie_word_embeddings": true})", kUnimplemented, {"tie_word_embeddings: true"}},
       {R"({"attention_bias": true})", kUnimplemented, {"attention_bias: true"}},
       {R"({"num_key_value_heads": 2})", kUnimplemented, {"num_key_value_heads: 2"}},
       {R"({"n_shared_experts": 0})", kUnimplemented, {"n_shared_experts: 0"}},
       {R"({"torch_dtype": "float16"})", kUnimplemented, {"torch_dtype", "float16"}},
       {R"({"compress_rates": {"compressed_sparse_attention": 8}})", kUnimplemented, {": 8"}},
       {R"({"rope_scaling": {"type": "linear"}})", kUnimplemented, {"rope_scaling", "'linear'"}},
       {R"({"rope_scaling": {"attention_factor": 1.2}})",
        kUnimplemented,
        {"attention_factor: 1.2"}},
       {R"({"rope_scaling": {"factor": null}})", kInvalid, {"rope_scaling: factor", "missing"}},
       {R"({"rope_scaling": {"beta_slow": 33}})", kInvalid, {"beta_fast: 32", "33"}}});
}

TEST(DeepSeekV4Config, TransformersSpellingRefusals) {
  CheckRefusals(
      Transformers(),
      {{R"({"partial_rotary_factor": null})", kInvalid, {"qk_rope_head_dim", "missing"}},
       {R"({"partial_rotary_factor": 0.26})", kInvalid, {"partial_rotary_factor", "64"}},
       {R"({"layer_types": null})", kInvalid, {"layer_types", "missing"}},
       {R"({"layer_types": ["sliding_attention"]})", kInvalid, {"layer_types", "1", "4 layers"}},
       {R"({"mlp_layer_types": ["moe", "moe", "moe", "dense"]})", kInvalid, {"'dense'"}},
       {R"({"num_hash_layers": 2})", kInvalid, {"mlp_layer_types: layer 1", "num_hash_layers 2"}},
       {R"({"compress_ratios": [0, 128, 128, 4]})", kInvalid, {"layer_types: layer 1", "128"}},
       {R"({"rope_theta": 500})", kInvalid, {"rope_theta", "contradicts", "10000"}},
       {R"({"compress_rope_theta": 500})", kInvalid, {"compress_rope_theta", "contradicts"}},
       {R"({"rope_parameters": {"main": null}})", kInvalid, {"rope_parameters: main", "missing"}},
       {R"({"rope_parameters": {"main": {"rope_theta": null}}})", kInvalid, {"main: rope_theta"}},
       {R"({"rope_parameters": {"compress": {"attention_factor": null}}})",
        kInvalid,
        {"compress: attention_factor", "missing"}}});
  Json both = Transformers();
  both.merge_patch(Released());
  both["rope_scaling"]["factor"] = 8;
  ExpectRefused(Parse(both).status(), kInvalid, {"rope_scaling", "contradicts rope_parameters"});
}

TEST(DeepSeekV4Config, QuantisationRefusals) {
  CheckRefusals(Released(),
                {{R"({"expert_dtype": "fp4"})", kInvalid, {"expert_dtype: 'fp4'", "no quant"}},
                 {R"({"expert_dtype": "int4"})", kUnimplemented, {"expert_dtype: 'int4'"}},
                 {R"({"quantization_config": {"quant_method": "awq"}})", kUnimplemented, {"'awq'"}},
                 {R"({"quantization_config": 4})", kInvalid, {"quantization_config: 4"}}});
  const auto quantization = [](const std::string& patch) {
    return "{\"quantization_config\": " + patch + "}";
  };
  const std::vector<std::pair<std::string, std::string>> invalid = {
      {R"({"weight_block_size": null})", "weight_block_size: is missing"},
      {R"({"scale_fmt": null})", "scale_fmt: is missing"},
      {R"({"moe_quant_algo": "NVFP4", "quantized_layers": {"layers.4.ffn.experts": {}}})",
       "'layers.4.ffn.experts' names no routed experts of the 4 layers"},
      {R"({"moe_quant_algo": "NVFP4", "quantized_layers": {"layers.x.ffn.experts": {}}})",
       "'layers.x.ffn.experts'"},
      {R"({"moe_quant_algo": "NVFP4", "quantized_layers": {"layers.1.attn": {}}})",
       "layers.1.attn"},
      {R"({"quantized_layers": {}})", "moe_quant_algo: is missing"}};
  for (const auto& [patch, words] : invalid) {
    ExpectRefused(Parse(Fp8(quantization(patch))).status(), kInvalid, {words});
  }
  const std::vector<std::pair<std::string, std::string>> unimplemented = {
      {R"({"fmt": "e5m2"})", "fmt: 'e5m2'"},
      {R"({"activation_scheme": "static"})", "activation_scheme: 'static'"},
      {R"({"weight_block_size": [64, 128]})", "weight_block_size"},
      {R"({"moe_quant_algo": "W4A8"})", "moe_quant_algo: 'W4A8'"},
      {R"({"group_size": 32})", "group_size: 32"},
      {R"({"kv_cache_quant_algo": "FP8"})", "kv_cache_quant_algo"}};
  for (const auto& [patch, words] : unimplemented) {
    ExpectRefused(Parse(Fp8(quantization(patch))).status(), kUnimplemented, {words});
  }
  ExpectRefused(Parse(Fp8(R"({"hidden_size": 176})")).status(), kInvalid, {"hidden_size", "32"});
  ExpectRefused(Parse(Fp8(R"({"moe_intermediate_size": 120})")).status(), kInvalid,
                {"moe_intermediate_size: 120", "32"});
  ExpectRefused(Parse(Fp8(R"({"expert_dtype": "bf16"})")).status(), kInvalid, {"contradicts"});
  CheckRefusals(
      Patched(Released(), kCompressedTensors),
      {{R"({"quantization_config": {"format": "int-quantized"}})", kUnimplemented, {"int-quant"}},
       {R"({"quantization_config": {"config_groups": null}})", kInvalid, {"config_groups"}},
       {R"({"quantization_config": {"config_groups": {"group_0": null}}})",
        kUnimplemented,
        {"no group"}},
       {R"({"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 3}}}}})",
        kUnimplemented,
        {"'group_0'", "num_bits: 3"}},
       {R"({"quantization_config": {"kv_cache_scheme": {}}})", kUnimplemented, {"kv_cache_scheme"}},
       {R"({"expert_dtype": "fp8"})", kInvalid, {"config_groups", "expert_dtype 'fp8'"}}});
}

TEST(DeepSeekV4Config, IsAModelConfigToo) {
  const absl::StatusOr<ModelConfig> config =
      ParseModelConfig(Fp8().dump(), "DIR/config.json", ConfigText{kSibling, "DIR/hf"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, ModelFamily::kDeepSeekV4);
  EXPECT_EQ(config->model_type, "deepseek_v4");
  EXPECT_EQ(config->architectures, std::vector<std::string>{"DeepseekV4ForCausalLM"});
  ASSERT_TRUE(config->deepseek_v4.has_value());
  EXPECT_EQ(config->deepseek_v4->layers[1].experts, kNvFp4);
  EXPECT_EQ(config->vocab_size, config->deepseek_v4->vocab_size);
  EXPECT_EQ(config->hidden_size, config->deepseek_v4->hidden_size);
  EXPECT_EQ(config->max_position, config->deepseek_v4->max_position);
  EXPECT_EQ(config->eos_token_ids, config->deepseek_v4->eos_token_ids);
  EXPECT_EQ(config->bos_token_id, config->deepseek_v4->bos_token_id);
  EXPECT_EQ(config->num_layers, 4);
  EXPECT_EQ(DefaultPageTokens(*config), 128);
  EXPECT_EQ(DefaultPageTokens(ModelConfig()), 16);
  ExpectRefused(
      ParseModelConfig(Fp8(R"({"model_type": "deepseek_v41"})").dump(), "DIR/config.json").status(),
      kUnimplemented, {"DeepSeek-V4.1"});
  ExpectRefused(ParseModelConfig(Fp8(R"({"hc_mult": null})").dump(), "DIR/config.json").status(),
                kInvalid, {"hc_mult", "missing"});
}

TEST(DeepSeekV4Config, Folders) {
  // Of its own, and empty: an earlier run's files would speak too.
  const std::string dir = ::testing::TempDir() + "/deepseek_v4_config_test";
  std::filesystem::remove_all(dir);
  ASSERT_TRUE(std::filesystem::create_directories(dir));
  EXPECT_EQ(LoadModelConfig(dir + "/none").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(dir + "/config.json") << Fp8().dump();
  EXPECT_EQ(LoadModelConfig(dir)->deepseek_v4->layers[1].experts, kMxFp4);
  std::ofstream(dir + "/hf_quant_config.json") << kSibling;
  EXPECT_EQ(LoadModelConfig(dir)->deepseek_v4->layers[1].experts, kNvFp4);
}

}  // namespace
}  // namespace millrace
