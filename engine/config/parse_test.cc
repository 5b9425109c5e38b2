#include "engine/config/parse.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// A small model with every optional field absent.
Json Minimal() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 320,
    "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 6, "max_position_embeddings": 1024})");
}

Json With(const std::string& patch) {
  Json config = Minimal();
  config.merge_patch(Json::parse(patch));  // null removes
  return config;
}

absl::StatusOr<ModelConfig> Parse(const Json& config) {
  return ParseModelConfig(config.dump(), "DIR/config.json");
}

TEST(ModelConfig, MinimalGetsTheDefaultsOfTransformers) {
  const absl::StatusOr<ModelConfig> config = Parse(Minimal());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->family, ModelFamily::kLlama);
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->architectures, std::vector<std::string>{"LlamaForCausalLM"});
  EXPECT_EQ(config->vocab_size, 320);
  EXPECT_EQ(config->hidden_size, 192);
  EXPECT_EQ(config->intermediate_size, 512);
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->num_heads, 6);
  EXPECT_EQ(config->num_kv_heads, 6);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->max_position, 1024);
  EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->rope.type, RopeScaling::kDefault);
  EXPECT_DOUBLE_EQ(config->rope.theta, 10000.0);
  EXPECT_FALSE(config->tie_embeddings);
  EXPECT_FALSE(config->attention_bias);
  EXPECT_FALSE(config->mlp_bias);
  EXPECT_TRUE(config->eos_token_ids.empty());
  EXPECT_EQ(config->bos_token_id, -1);
  EXPECT_EQ(config->pad_token_id, -1);
  EXPECT_EQ(config->dtype, DType::kF32);
}

TEST(ModelConfig, EveryFieldIsRead) {
  const absl::StatusOr<ModelConfig> config = Parse(With(R"({
    "num_key_value_heads": 2, "head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true, "hidden_act": "silu",
    "bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": 4, "torch_dtype": "bfloat16"})"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(config->rope.theta, 500000.0);
  EXPECT_TRUE(config->tie_embeddings);
  EXPECT_TRUE(config->attention_bias);
  EXPECT_TRUE(config->mlp_bias);
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_EQ(config->eos_token_ids, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(config->pad_token_id, 4);
  EXPECT_EQ(config->dtype, DType::kBF16);
}

TEST(ModelConfig, DTypeSpellings) {
  EXPECT_EQ(Parse(With(R"({"dtype": "float16"})"))->dtype, DType::kF16);
  EXPECT_EQ(Parse(With(R"({"torch_dtype": "float32"})"))->dtype, DType::kF32);
  EXPECT_EQ(Parse(With(R"({"dtype": "float32", "torch_dtype": "bfloat16"})"))->dtype, DType::kBF16);
}

TEST(ModelConfig, RopeSpellings) {
  const char* kLlama3Fields =
      R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64)";
  const std::string patches[] = {
      R"({"rope_theta": 7.0, "rope_scaling": {"rope_type": "llama3", )" +
          std::string(kLlama3Fields) + "}}",
      R"({"rope_theta": 7.0, "rope_scaling": {"type": "llama3", )" + std::string(kLlama3Fields) +
          "}}",
      R"({"rope_parameters": {"rope_theta": 7.0, "rope_type": "llama3", )" +
          std::string(kLlama3Fields) + "}}"};
  for (const std::string& patch : patches) {
    const absl::StatusOr<ModelConfig> config = Parse(With(patch));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope.type, RopeScaling::kLlama3);
    EXPECT_DOUBLE_EQ(config->rope.theta, 7.0);
    EXPECT_DOUBLE_EQ(config->rope.factor, 8.0);
    EXPECT_DOUBLE_EQ(config->rope.low_freq_factor, 1.0);
    EXPECT_DOUBLE_EQ(config->rope.high_freq_factor, 4.0);
    EXPECT_EQ(config->rope.original_max_position, 64);
  }
  const absl::StatusOr<ModelConfig> linear =
      Parse(With(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})"));
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->rope.type, RopeScaling::kLinear);
  EXPECT_DOUBLE_EQ(linear->rope.factor, 2.5);
  const absl::StatusOr<ModelConfig> plain =
      Parse(With(R"({"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}})"));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->rope.type, RopeScaling::kDefault);
  EXPECT_DOUBLE_EQ(plain->rope.theta, 9.0);
  EXPECT_EQ(plain->rope.frequency_dtype, DType::kF32);
  const absl::StatusOr<ModelConfig> rounded =
      Parse(With(R"({"rope_frequency_dtype": "bfloat16"})"));
  ASSERT_TRUE(rounded.ok()) << rounded.status();
  EXPECT_EQ(rounded->rope.frequency_dtype, DType::kBF16);
}

TEST(ModelConfig, MistralWithoutAnEffectiveWindow) {
  for (const char* window : {"1024", "4096"}) {
    EXPECT_TRUE(Parse(With(R"({"architectures": ["MistralForCausalLM"], "sliding_window": )" +
                           std::string(window) + "}"))
                    .ok());
  }
  Json config = With(R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral"})");
  config["sliding_window"] = nullptr;
  EXPECT_TRUE(Parse(config).ok());
}

TEST(ModelConfig, MinusOneMeansNoToken) {
  const absl::StatusOr<ModelConfig> config =
      Parse(With(R"({"pad_token_id": -1, "eos_token_id": -1})"));
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->pad_token_id, -1);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

struct Refusal {
  const char* patch;
  absl::StatusCode code;
  std::vector<const char*> words;
};

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

const Refusal kRefusals[] = {
    {R"({"vocab_size": null})", kInvalid, {"vocab_size", "missing"}},
    {R"({"vocab_size": 0})", kInvalid, {"vocab_size: 0", "1 to 16777216"}},
    {R"({"vocab_size": "320"})", kInvalid, {"vocab_size: \"320\"", "integer"}},
    {R"({"vocab_size": 320.5})", kInvalid, {"vocab_size: 320.5"}},
    {R"({"hidden_size": -192})", kInvalid, {"hidden_size: -192"}},
    {R"({"hidden_size": 18446744073709551615})", kInvalid, {"hidden_size"}},
    {R"({"hidden_size": 191})", kInvalid, {"hidden_size: 191", "6 heads"}},
    {R"({"intermediate_size": 99999999})", kInvalid, {"intermediate_size", "1048576"}},
    {R"({"num_hidden_layers": 100000})", kInvalid, {"num_hidden_layers", "4096"}},
    {R"({"num_attention_heads": 0})", kInvalid, {"num_attention_heads: 0"}},
    {R"({"num_key_value_heads": 4})", kInvalid, {"num_key_value_heads: 4", "6"}},
    {R"({"num_key_value_heads": 12})", kInvalid, {"num_key_value_heads: 12", "1 to 6"}},
    {R"({"num_key_value_heads": [6]})", kInvalid, {"num_key_value_heads: a list"}},
    {R"({"head_dim": 33})", kInvalid, {"head_dim: 33", "even"}},
    {R"({"head_dim": 8192})", kInvalid, {"head_dim: 8192", "4096"}},
    {R"({"hidden_size": 96000})", kInvalid, {"head_dim: 16000", "4096"}},
    {R"({"max_position_embeddings": null})", kInvalid, {"max_position_embeddings", "missing"}},
    {R"({"rms_norm_eps": 0})", kInvalid, {"rms_norm_eps: 0"}},
    {R"({"rms_norm_eps": "1e-5"})", kInvalid, {"rms_norm_eps", "number"}},
    {R"({"rope_theta": -1.0})", kInvalid, {"rope_theta: -1"}},
    {R"({"rope_frequency_dtype": "float16"})", kInvalid, {"rope_frequency_dtype: want float32"}},
    {R"({"tie_word_embeddings": "yes"})", kInvalid, {"tie_word_embeddings", "true or false"}},
    {R"({"bos_token_id": 320})", kInvalid, {"bos_token_id: 320", "319"}},
    {R"({"eos_token_id": [1, 320]})", kInvalid, {"eos_token_id: 320", "319"}},
    {R"({"eos_token_id": "2"})", kInvalid, {"eos_token_id: \"2\""}},
    {R"({"pad_token_id": 2147483648})", kInvalid, {"pad_token_id: 2147483648"}},
    {R"({"architectures": "LlamaForCausalLM"})", kInvalid, {"architectures"}},
    {R"({"architectures": ["Qwen2ForCausalLM"]})",
     kUnimplemented,
     {"'Qwen2ForCausalLM'", "LlamaForCausalLM"}},
    {R"({"architectures": null, "model_type": "gpt2"})", kUnimplemented, {"'gpt2'"}},
    {R"({"auto_map": {"AutoModel": "x.Y"}})", kUnimplemented, {"auto_map", "code"}},
    {R"({"quantization_config": {"quant_method": "awq"}})",
     kUnimplemented,
     {"quantization_config", "'awq'"}},
    {R"({"quantization_config": 4})", kInvalid, {"quantization_config: 4"}},
    {R"({"hidden_act": "gelu"})", kUnimplemented, {"hidden_act: 'gelu'"}},
    {R"({"sliding_window": 512})", kUnimplemented, {"sliding_window: 512", "1024"}},
    {R"({"partial_rotary_factor": 0.5})", kUnimplemented, {"partial_rotary_factor: 0.5"}},
    {R"({"torch_dtype": "float8_e4m3fn"})", kUnimplemented, {"torch_dtype", "float8_e4m3fn"}},
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 4}})",
     kUnimplemented,
     {"rope_scaling", "'yarn'", "llama3"}},
    {R"({"rope_scaling": {"type": "dynamic", "factor": 4}})", kUnimplemented, {"'dynamic'"}},
    {R"({"rope_scaling": {"type": "longrope"}})", kUnimplemented, {"'longrope'"}},
    {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
     kUnimplemented,
     {"rope_parameters", "layer"}},
    {R"({"rope_scaling": {"factor": 4}})", kInvalid, {"rope_type", "missing"}},
    {R"({"rope_scaling": {"type": "linear"}})", kInvalid, {"factor", "missing"}},
    {R"({"rope_scaling": {"type": "linear", "factor": 0}})", kInvalid, {"factor: 0"}},
    {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4,
        "high_freq_factor": 4, "original_max_position_embeddings": 64}})",
     kInvalid,
     {"high_freq_factor: 4", "low_freq_factor"}},
    {R"({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1,
        "high_freq_factor": 4}})",
     kInvalid,
     {"original_max_position_embeddings", "missing"}},
    {R"({"rope_scaling": "llama3"})", kInvalid, {"rope_scaling: \"llama3\"", "object"}},
};

TEST(ModelConfig, RefusalsNameFieldValueAndLimit) {
  for (const Refusal& refusal : kRefusals) {
    const absl::StatusOr<ModelConfig> config = Parse(With(refusal.patch));
    ASSERT_FALSE(config.ok()) << refusal.patch;
    EXPECT_EQ(config.status().code(), refusal.code) << config.status();
    const std::string message(config.status().message());
    EXPECT_EQ(message.rfind("DIR/config.json: ", 0), 0u) << message;
    for (const char* word : refusal.words) {
      EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
    }
  }
}

TEST(ModelConfig, BrokenText) {
  for (const char* text : {"", "{", "[]", "42", "\"x\"", "{\"a\": 1,}", "{\"a\": \xff}",
                           "{\"vocab_size\": 1, \"vocab_size\": 2}", "\xef\xbb"}) {
    const absl::StatusOr<ModelConfig> config = ParseModelConfig(text, "F");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(config.status().message()).rfind("F: ", 0), 0u) << config.status();
  }
}

TEST(GenerationDefaults, Fields) {
  const auto defaults = ParseGenerationDefaults(
      R"({"eos_token_id": [128001, 128009], "do_sample": true, "temperature": 0.6, "top_p": 0.9,
          "top_k": 50, "repetition_penalty": 1.1, "unknown": {}})",
      "F");
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->eos_token_ids, (std::vector<int32_t>{128001, 128009}));
  EXPECT_EQ(defaults->do_sample, true);
  EXPECT_EQ(defaults->temperature, 0.6);
  EXPECT_EQ(defaults->top_p, 0.9);
  EXPECT_EQ(defaults->top_k, 50);
  EXPECT_EQ(defaults->repetition_penalty, 1.1);

  const auto silent = ParseGenerationDefaults(R"({"temperature": null})", "F");
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_FALSE(silent->do_sample || silent->temperature || silent->top_p || silent->top_k ||
               silent->repetition_penalty);
  EXPECT_TRUE(silent->eos_token_ids.empty());
}

TEST(GenerationDefaults, Refusals) {
  for (const char* text :
       {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": 1.5})", R"({"top_k": -2})",
        R"({"repetition_penalty": 0})", R"({"do_sample": 1})", R"({"eos_token_id": [null]})"}) {
    EXPECT_FALSE(ParseGenerationDefaults(text, "F").ok()) << text;
  }
}

TEST(TokenizerSettings, StringsAndObjects) {
  const auto plain = ParseTokenizerSettings(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
          "chat_template": "T"})",
      "F");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->bos_token, "<s>");
  EXPECT_EQ(plain->eos_token, "</s>");
  EXPECT_EQ(plain->chat_template, "T");
  const auto named = ParseTokenizerSettings(
      R"({"bos_token": null, "chat_template": [{"name": "rag", "template": "R"},
                                               {"name": "default", "template": "D"}]})",
      "F");
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->bos_token, "");
  EXPECT_EQ(named->chat_template, "D");
  for (const char* text : {R"({"bos_token": 1})", R"({"eos_token": {"content": 1}})",
                           R"({"chat_template": ["x"]})", R"({"chat_template": {}})"}) {
    EXPECT_FALSE(ParseTokenizerSettings(text, "F").ok()) << text;
  }
}

TEST(Load, FoldersWithAndWithoutFiles) {
  const std::string dir = ::testing::TempDir();
  EXPECT_EQ(LoadModelConfig(dir + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(LoadGenerationDefaults(dir + "/none").ok());
  EXPECT_TRUE(LoadTokenizerSettings(dir + "/none").ok());

  std::ofstream(dir + "/config.json") << Minimal().dump();
  std::ofstream(dir + "/generation_config.json") << R"({"top_k": 7})";
  std::ofstream(dir + "/tokenizer_config.json") << R"({"bos_token": "<s>", "chat_template": "T"})";
  std::ofstream(dir + "/chat_template.jinja") << "newer";
  EXPECT_TRUE(LoadModelConfig(dir).ok());
  EXPECT_EQ(LoadGenerationDefaults(dir)->top_k, 7);
  const auto settings = LoadTokenizerSettings(dir);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->bos_token, "<s>");
  EXPECT_EQ(settings->chat_template, "newer");

  std::ofstream(dir + "/config.json") << "{";
  const absl::Status broken = LoadModelConfig(dir).status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(broken.message()).find(dir + "/config.json"), std::string::npos);
}

}  // namespace
}  // namespace millrace
