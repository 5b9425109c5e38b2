#include "engine/config/parse.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/config/deepseek_v4_config.h"
#include "engine/config/json_fields.h"
#include "engine/config/llama_quantization.h"
#include "engine/config/read_file.h"
#include "engine/config/rope_parse.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Far above published models, and small enough that products of any three fit int64.
constexpr IntLimits kVocabLimits = {1, 1 << 24};
constexpr IntLimits kWidthLimits = {1, 1 << 20};
constexpr IntLimits kLayerLimits = {1, 4096};
constexpr IntLimits kHeadLimits = {1, 4096};
constexpr IntLimits kHeadDimLimits = {2, 4096};
constexpr IntLimits kPositionLimits = {1, 1 << 26};
constexpr NumberLimits kEpsLimits = {1e-30, 1.0};
constexpr int32_t kMaxId = std::numeric_limits<int32_t>::max();

constexpr int64_t kMaxConfigBytes = 16 << 20;
// These carry every added token once more, and templates.
constexpr int64_t kMaxTokenizerSettingsBytes = 64 << 20;

constexpr std::array<const char*, 2> kArchitectures = {"LlamaForCausalLM", "MistralForCausalLM"};
constexpr std::array<const char*, 2> kModelTypes = {"llama", "mistral"};

template <size_t kCount>
bool Contains(const std::array<const char*, kCount>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What decides whether the model is one of ours at all. Said before any field is looked at.
absl::Status CheckFamily(JsonFields& fields, ModelConfig& config) {
  config.architectures = fields.Strings("architectures");
  config.model_type = fields.String("model_type").value_or("");
  RETURN_IF_ERROR(fields.status());
  if (fields.Find("auto_map") != nullptr) {
    return Unsupported(fields,
                       "auto_map: the model brings its own Python code, which Millrace never runs; "
                       "use a folder without it");
  }
  for (const std::string& architecture : config.architectures) {
    if (!Contains(kArchitectures, architecture)) {
      return Unsupported(fields, absl::StrCat("architectures: ", Quoted(architecture),
                                              " is not supported; supported are ",
                                              absl::StrJoin(kArchitectures, ", ")));
    }
  }
  if (config.architectures.empty() && !Contains(kModelTypes, config.model_type)) {
    return Unsupported(fields,
                       absl::StrCat("no architectures, and model_type ", Quoted(config.model_type),
                                    " is not one of ", absl::StrJoin(kModelTypes, ", ")));
  }
  config.family = ModelFamily::kLlama;
  return fields.status();
}

void ReadSizes(JsonFields& fields, ModelConfig& config) {
  const auto required = [&fields](const char* key, IntLimits limits) {
    return static_cast<int32_t>(fields.RequiredInt(key, limits));
  };
  config.vocab_size = required("vocab_size", kVocabLimits);
  config.hidden_size = required("hidden_size", kWidthLimits);
  config.intermediate_size = required("intermediate_size", kWidthLimits);
  config.num_layers = required("num_hidden_layers", kLayerLimits);
  config.num_heads = required("num_attention_heads", kHeadLimits);
  config.max_position = required("max_position_embeddings", kPositionLimits);
  config.num_kv_heads =
      static_cast<int32_t>(fields.Int("num_key_value_heads", {1, std::max(config.num_heads, 1)})
                               .value_or(config.num_heads));
  config.rms_norm_eps = fields.Number("rms_norm_eps", kEpsLimits).value_or(1e-6);
  const std::optional<int64_t> head_dim = fields.Int("head_dim", kHeadDimLimits);
  if (!fields.status().ok()) return;
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.Fail("num_key_value_heads", absl::StrCat(config.num_kv_heads, " does not divide the ",
                                                    config.num_heads, " attention heads"));
  }
  if (!head_dim.has_value() && config.hidden_size % config.num_heads != 0) {
    fields.Fail("hidden_size", absl::StrCat(config.hidden_size, " is not a multiple of the ",
                                            config.num_heads, " heads, and there is no head_dim"));
  }
  config.head_dim = static_cast<int32_t>(head_dim.value_or(config.hidden_size / config.num_heads));
  if (config.head_dim % 2 != 0 || config.head_dim > kHeadDimLimits.max) {
    fields.Fail("head_dim",
                absl::StrCat(config.head_dim, ", want an even number up to ", kHeadDimLimits.max));
  }
}

void ReadTokens(JsonFields& fields, ModelConfig& config) {
  // -1 is how some files say "none".
  const IntLimits limits = {-1, config.vocab_size - 1};
  config.bos_token_id = static_cast<int32_t>(fields.Int("bos_token_id", limits).value_or(-1));
  config.pad_token_id = static_cast<int32_t>(fields.Int("pad_token_id", limits).value_or(-1));
  config.eos_token_ids = fields.IntOrInts("eos_token_id", limits);
  std::erase(config.eos_token_ids, -1);
}

// What would change the arithmetic and is not built.
absl::Status CheckArithmetic(JsonFields& fields, const ModelConfig& config) {
  const std::string act = fields.String("hidden_act").value_or("silu");
  if (act != "silu") {
    return Unsupported(fields, absl::StrCat("hidden_act: ", Quoted(act), ", supported is 'silu'"));
  }
  const std::optional<int64_t> window = fields.Int("sliding_window", {1, kMaxId});
  if (window.has_value() && *window < config.max_position) {
    return Unsupported(fields,
                       absl::StrCat("sliding_window: ", *window, " is shorter than the ",
                                    config.max_position, " positions; windows are not supported"));
  }
  const double rotary = fields.Number("partial_rotary_factor", {0.0, 1.0}).value_or(1.0);
  if (rotary != 1.0) {
    return Unsupported(fields, absl::StrCat("partial_rotary_factor: ", rotary, ", supported is 1"));
  }
  return fields.status();
}

absl::Status ReadDType(JsonFields& fields, ModelConfig& config) {
  // Where both stand, torch_dtype is what the checkpoint was stored as; dtype is the newer
  // spelling. Transformers' own default is float32.
  std::optional<std::string> name = fields.String("torch_dtype");
  const char* key = "torch_dtype";
  if (!name.has_value()) {
    key = "dtype";
    name = fields.String(key);
  }
  const std::string dtype = name.value_or("float32");
  for (const DType known : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (std::string(DTypeName(known)) == dtype) {
      config.dtype = known;
      return fields.status();
    }
  }
  return Unsupported(
      fields, absl::StrCat(key, ": ", Quoted(dtype), ", supported are float32, bfloat16, float16"));
}

std::string TokenText(JsonFields& fields, const char* key) {
  const Json* value = fields.Find(key);
  if (value == nullptr || !value->is_object()) return fields.String(key).value_or("");
  // The older files hold the whole added token.
  JsonFields token(*value, absl::StrCat(fields.where(), ": ", key));
  const std::string text = token.String("content").value_or("");
  if (!token.status().ok()) fields.Fail(key, "its content is not a string");
  return text;
}

// A string, or a list of named ones of which "default" is meant.
std::string ChatTemplate(JsonFields& fields) {
  constexpr const char* kKey = "chat_template";
  const Json* value = fields.Find(kKey);
  if (value == nullptr || !value->is_array()) return fields.String(kKey).value_or("");
  for (const Json& item : *value) {
    if (!item.is_object()) {
      fields.Fail(kKey, "a list that holds something other than objects");
      return "";
    }
    JsonFields named(item, absl::StrCat(fields.where(), ": ", kKey));
    const std::string name = named.String("name").value_or("");
    const std::string text = named.String("template").value_or("");
    if (!named.status().ok()) fields.Fail(kKey, "a name or template that is not a string");
    if (name == "default") return text;
  }
  return "";
}

ModelConfig FromDeepSeekV4(JsonFields& fields, DeepSeekV4Config own) {
  ModelConfig config;
  config.family = ModelFamily::kDeepSeekV4;
  // Their types were checked with the rest.
  config.model_type = fields.String("model_type").value_or("");
  config.architectures = fields.Strings("architectures");
  config.vocab_size = own.vocab_size;
  config.hidden_size = own.hidden_size;
  config.num_layers = static_cast<int32_t>(own.layers.size());
  config.max_position = own.max_position;
  config.eos_token_ids = own.eos_token_ids;
  config.bos_token_id = own.bos_token_id;
  config.dtype = own.dtype;
  config.deepseek_v4 = std::move(own);
  return config;
}

// hf_quant_config.json too, where there is one.
absl::StatusOr<std::optional<Fp8Config>> ReadFp8Config(JsonFields& fields,
                                                       const std::optional<ConfigText>& hf_quant) {
  if (!hf_quant.has_value()) return ReadLlamaQuantization(fields, nullptr);
  ASSIGN_OR_RETURN(const Json root, ParseJsonObject(hf_quant->json, hf_quant->where));
  JsonFields quant_fields(root, hf_quant->where);
  return ReadLlamaQuantization(fields, &quant_fields);
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json, const std::string& where,
                                             const std::optional<ConfigText>& hf_quant) {
  ASSIGN_OR_RETURN(const Json root, ParseJsonObject(json, where));
  JsonFields fields(root, where);
  if (NamesDeepSeekV4(fields)) {
    ASSIGN_OR_RETURN(DeepSeekV4Config own, ParseDeepSeekV4Config({json, where}, hf_quant));
    return FromDeepSeekV4(fields, std::move(own));
  }
  ModelConfig config;
  RETURN_IF_ERROR(CheckFamily(fields, config));
  ASSIGN_OR_RETURN(config.fp8, ReadFp8Config(fields, hf_quant));
  ReadSizes(fields, config);
  RETURN_IF_ERROR(fields.status());
  ReadTokens(fields, config);
  config.tie_embeddings = fields.Bool("tie_word_embeddings").value_or(false);
  config.attention_bias = fields.Bool("attention_bias").value_or(false);
  config.mlp_bias = fields.Bool("mlp_bias").value_or(false);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(CheckArithmetic(fields, config));
  RETURN_IF_ERROR(ReadDType(fields, config));
  ASSIGN_OR_RETURN(config.rope, ParseRope(fields, config.max_position));
  return config;
}

absl::StatusOr<GenerationDefaults> ParseGenerationDefaults(std::string_view json,
                                                           const std::string& where) {
  ASSIGN_OR_RETURN(const Json root, ParseJsonObject(json, where));
  JsonFields fields(root, where);
  GenerationDefaults defaults;
  defaults.eos_token_ids = fields.IntOrInts("eos_token_id", {-1, kMaxId});
  std::erase(defaults.eos_token_ids, -1);
  defaults.do_sample = fields.Bool("do_sample");
  defaults.temperature = fields.Number("temperature", {0.0, 1e4});
  defaults.top_p = fields.Number("top_p", {0.0, 1.0});
  if (const auto top_k = fields.Int("top_k", {-1, kMaxId})) {
    defaults.top_k = static_cast<int32_t>(*top_k);
  }
  defaults.repetition_penalty = fields.Number("repetition_penalty", {1e-6, 1e4});
  RETURN_IF_ERROR(fields.status());
  return defaults;
}

absl::StatusOr<TokenizerSettings> ParseTokenizerSettings(std::string_view json,
                                                         const std::string& where) {
  ASSIGN_OR_RETURN(const Json root, ParseJsonObject(json, where));
  JsonFields fields(root, where);
  TokenizerSettings settings;
  settings.bos_token = TokenText(fields, "bos_token");
  settings.eos_token = TokenText(fields, "eos_token");
  settings.chat_template = ChatTemplate(fields);
  RETURN_IF_ERROR(fields.status());
  return settings;
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& dir) {
  const std::string path = dir + "/config.json";
  absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file; give a Hugging Face model folder"));
  }
  RETURN_IF_ERROR(text.status());
  const std::string sibling_path = dir + "/hf_quant_config.json";
  absl::StatusOr<std::string> sibling = ReadFile(sibling_path, kMaxConfigBytes);
  if (absl::IsNotFound(sibling.status())) return ParseModelConfig(*text, path);
  RETURN_IF_ERROR(sibling.status());
  return ParseModelConfig(*text, path, ConfigText{*sibling, sibling_path});
}

absl::StatusOr<GenerationDefaults> LoadGenerationDefaults(const std::string& dir) {
  const std::string path = dir + "/generation_config.json";
  absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return GenerationDefaults();
  RETURN_IF_ERROR(text.status());
  return ParseGenerationDefaults(*text, path);
}

absl::StatusOr<TokenizerSettings> LoadTokenizerSettings(const std::string& dir) {
  const std::string path = dir + "/tokenizer_config.json";
  TokenizerSettings settings;
  absl::StatusOr<std::string> text = ReadFile(path, kMaxTokenizerSettingsBytes);
  if (text.ok()) {
    ASSIGN_OR_RETURN(settings, ParseTokenizerSettings(*text, path));
  } else if (!absl::IsNotFound(text.status())) {
    return text.status();
  }
  absl::StatusOr<std::string> chat = ReadFile(dir + "/chat_template.jinja", kMaxConfigBytes);
  if (chat.ok()) {
    settings.chat_template = *std::move(chat);
  } else if (!absl::IsNotFound(chat.status())) {
    return chat.status();
  }
  return settings;
}

}  // namespace millrace
