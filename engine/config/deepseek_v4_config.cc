#include "engine/config/deepseek_v4_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/config/deepseek_v4_quantization.h"
#include "engine/config/json_fields.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Far above published models, and small enough that products of any three fit int64.
constexpr IntLimits kVocabLimits = {1, 1 << 24};
constexpr IntLimits kWidthLimits = {1, 1 << 20};
constexpr IntLimits kLayerLimits = {1, 1000};  // with MTP layers within JsonFields' list limit
constexpr IntLimits kCountLimits = {1, 65536};
constexpr IntLimits kHeadDimLimits = {2, 4096};
constexpr IntLimits kPositionLimits = {1, 1 << 26};
constexpr IntLimits kStreamLimits = {1, 8};  // kernels/hyper_connection
constexpr IntLimits kIterationLimits = {1, 1000};
constexpr IntLimits kMtpLimits = {0, 16};
constexpr NumberLimits kEpsLimits = {1e-30, 1.0};
constexpr NumberLimits kFactorLimits = {1e-6, 1e6};
constexpr NumberLimits kThetaLimits = {1.0, 1e15};

constexpr const char* kArchitecture = "DeepseekV4ForCausalLM";
constexpr const char* kModelType = "deepseek_v4";
constexpr const char* kFamilyPrefixes[] = {"DeepseekV4", "deepseek_v4"};

bool HasFamilyPrefix(const Json* value) {
  if (value == nullptr || !value->is_string()) return false;
  const auto& name = value->get_ref<const std::string&>();
  return std::any_of(std::begin(kFamilyPrefixes), std::end(kFamilyPrefixes),
                     [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
}

int32_t Required(JsonFields& fields, const char* key, IntLimits limits) {
  return static_cast<int32_t>(fields.RequiredInt(key, limits));
}

double RequiredNumber(JsonFields& fields, const char* key, NumberLimits limits) {
  if (fields.Find(key) == nullptr) fields.Fail(key, "is missing");
  return fields.Number(key, limits).value_or(limits.max);
}

// What decides whether the model is this one at all.
absl::Status CheckFamily(JsonFields& fields, const Json& root) {
  const std::string model_type = fields.String("model_type").value_or("");
  const std::vector<std::string> architectures = fields.Strings("architectures");
  RETURN_IF_ERROR(fields.status());
  const auto is_41 = [](const std::string& name) { return name.rfind("DeepseekV41", 0) == 0; };
  if (model_type.rfind("deepseek_v41", 0) == 0 ||
      std::any_of(architectures.begin(), architectures.end(), is_41)) {
    return Unsupported(fields,
                       "model_type: DeepSeek-V4.1 is another architecture than DeepSeek-V4 and is "
                       "not supported");
  }
  for (const std::string& architecture : architectures) {
    if (architecture == kArchitecture) continue;
    return Unsupported(fields,
                       absl::StrCat("architectures: ", Quoted(architecture),
                                    " is not supported; of DeepSeek-V4 ", kArchitecture, " is"));
  }
  if (model_type != kModelType) {
    fields.Fail("model_type", absl::StrCat(Quoted(model_type), ", want '", kModelType, "'"));
  }
  if (fields.Find("auto_map") != nullptr) {
    return Unsupported(fields,
                       "auto_map: the model brings its own Python code, which Millrace never runs; "
                       "use a folder without it");
  }
  for (const auto& [key, value] : root.items()) {
    if (key.rfind("dspark_", 0) != 0) continue;
    return Unsupported(fields,
                       absl::StrCat(Quoted(key),
                                    ": DSpark re-packs, whose mtp tensors are a block "
                                    "drafter, are not supported; use a checkpoint without"));
  }
  return fields.status();
}

void ReadSizes(JsonFields& fields, DeepSeekV4Config& config) {
  config.vocab_size = Required(fields, "vocab_size", kVocabLimits);
  config.hidden_size = Required(fields, "hidden_size", kWidthLimits);
  config.num_heads = Required(fields, "num_attention_heads", kCountLimits);
  config.head_dim = Required(fields, "head_dim", kHeadDimLimits);
  config.q_lora_rank = Required(fields, "q_lora_rank", kWidthLimits);
  config.o_groups = Required(fields, "o_groups", kCountLimits);
  config.o_lora_rank = Required(fields, "o_lora_rank", kWidthLimits);
  config.sliding_window = Required(fields, "sliding_window", kPositionLimits);
  config.max_position = Required(fields, "max_position_embeddings", kPositionLimits);
  config.rms_norm_eps = RequiredNumber(fields, "rms_norm_eps", kEpsLimits);
  config.index_heads = Required(fields, "index_n_heads", kCountLimits);
  config.index_head_dim = Required(fields, "index_head_dim", kHeadDimLimits);
  config.index_topk = Required(fields, "index_topk", kPositionLimits);
  config.expert_width = Required(fields, "moe_intermediate_size", kWidthLimits);
  config.num_experts = Required(fields, "n_routed_experts", kCountLimits);
  config.experts_per_token = Required(fields, "num_experts_per_tok", kCountLimits);
  config.routed_scaling = RequiredNumber(fields, "routed_scaling_factor", kFactorLimits);
  config.swiglu_limit = RequiredNumber(fields, "swiglu_limit", kFactorLimits);
  config.hc_streams = Required(fields, "hc_mult", kStreamLimits);
  config.hc_sinkhorn_iters = Required(fields, "hc_sinkhorn_iters", kIterationLimits);
  config.hc_eps = RequiredNumber(fields, "hc_eps", kEpsLimits);
  config.num_mtp_layers =
      static_cast<int32_t>(fields.Int("num_nextn_predict_layers", kMtpLimits).value_or(0));
  if (fields.status().ok() && config.num_heads % config.o_groups != 0) {
    fields.Fail("o_groups", absl::StrCat(config.o_groups, " does not divide the ", config.num_heads,
                                         " attention heads"));
  }
  if (fields.status().ok() && config.experts_per_token > config.num_experts) {
    fields.Fail("num_experts_per_tok", absl::StrCat(config.experts_per_token, " of only ",
                                                    config.num_experts, " routed experts"));
  }
}

// qk_rope_head_dim, or transformers' share of head_dim; both, where both stand.
void ReadRopeDim(JsonFields& fields, DeepSeekV4Config& config) {
  constexpr const char* kDim = "qk_rope_head_dim";
  constexpr const char* kShare = "partial_rotary_factor";
  const std::optional<int64_t> dim = fields.Int(kDim, kHeadDimLimits);
  const std::optional<double> share = fields.Number(kShare, {0.0, 1.0});
  if (!fields.status().ok()) return;
  if (!dim.has_value() && !share.has_value()) return fields.Fail(kDim, "is missing");
  const double product = share.value_or(0) * config.head_dim;
  const auto from_share = static_cast<int64_t>(std::llround(product));
  // The share is written as a decimal fraction: its last digit may be off.
  if (share.has_value() && std::abs(product - static_cast<double>(from_share)) > 1e-3) {
    return fields.Fail(
        kShare, absl::StrCat(*share, " of head_dim ", config.head_dim, " is no whole number"));
  }
  if (dim.has_value() && share.has_value() && *dim != from_share) {
    return fields.Fail(kDim, absl::StrCat(*dim, ", but ", kShare, " ", *share, " of head_dim ",
                                          config.head_dim, " is ", from_share));
  }
  const int64_t rope_dim = dim.value_or(from_share);
  const int64_t limit = std::min(config.head_dim, config.index_head_dim);
  if (rope_dim < 2 || rope_dim > limit || rope_dim % 2 != 0) {
    return fields.Fail(dim.has_value() ? kDim : kShare,
                       absl::StrCat(rope_dim, " rotated channels, want an even number up to ",
                                    limit, ", the smaller of head_dim and index_head_dim"));
  }
  config.rope_dim = static_cast<int32_t>(rope_dim);
}

// What would change the arithmetic and is not built.
absl::Status CheckArithmetic(JsonFields& fields) {
  const std::pair<const char*, const char*> words[] = {
      {"scoring_func", "sqrtsoftplus"}, {"topk_method", "noaux_tc"}, {"hidden_act", "silu"}};
  for (const auto& [key, want] : words) {
    const std::string value = fields.String(key).value_or(want);
    if (value == want) continue;
    return Unsupported(fields,
                       absl::StrCat(key, ": ", Quoted(value), ", supported is '", want, "'"));
  }
  const std::pair<const char*, bool> switches[] = {{"norm_topk_prob", true},
                                                   {"tie_word_embeddings", false},
                                                   {"attention_bias", false},
                                                   {"mlp_bias", false}};
  for (const auto& [key, want] : switches) {
    if (fields.Bool(key).value_or(want) == want) continue;
    return Unsupported(fields, absl::StrCat(key, ": ", want ? "false" : "true", ", supported is ",
                                            want ? "true" : "false"));
  }
  for (const char* key : {"num_key_value_heads", "n_shared_experts"}) {
    const std::optional<int64_t> value = fields.Int(key, {0, kCountLimits.max});
    if (!value.has_value()) fields.Fail(key, "is missing");
    if (value.value_or(1) == 1) continue;
    return Unsupported(fields, absl::StrCat(key, ": ", *value, ", supported is 1"));
  }
  return fields.status();
}

// By compress_ratios: one number a layer; those of MTP layers may follow.
absl::Status ReadRatios(JsonFields& fields, DeepSeekV4Config& config) {
  constexpr const char* kKey = "compress_ratios";
  const std::vector<int32_t> ratios = fields.IntOrInts(kKey, {0, kPositionLimits.max});
  RETURN_IF_ERROR(fields.status());
  const size_t num_layers = config.layers.size();
  const size_t most = num_layers + static_cast<size_t>(std::max(config.num_mtp_layers, 1));
  if (ratios.size() < num_layers || ratios.size() > most) {
    fields.Fail(kKey, absl::StrCat("has ", ratios.size(), " entries for ", num_layers, " layers"));
    return fields.status();
  }
  for (size_t i = 0; i < ratios.size(); ++i) {
    const bool is_mtp = i >= num_layers;
    if (is_mtp && ratios[i] != 0) {
      return Unsupported(fields,
                         absl::StrCat(kKey, ": ", ratios[i], " for an MTP layer, supported is 0"));
    }
    if (is_mtp) continue;
    constexpr DeepSeekV4Attention kKinds[] = {DeepSeekV4Attention::kWindow,
                                              DeepSeekV4Attention::kCsa, DeepSeekV4Attention::kHca};
    const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](auto attention) {
      return CompressRatio(attention) == ratios[i];
    });
    if (kind == std::end(kKinds)) {
      return Unsupported(fields, absl::StrCat(kKey, ": ", ratios[i], " for layer ", i,
                                              ", supported are 0, 4 and 128"));
    }
    config.layers[i].attention = *kind;
  }
  return fields.status();
}

// Refuses rates of transformers' compressors that are not the architecture's.
absl::Status CheckRates(JsonFields& fields) {
  const Json* object = fields.Object("compress_rates");
  RETURN_IF_ERROR(fields.status());
  if (object == nullptr) return absl::OkStatus();
  JsonFields rates(*object, absl::StrCat(fields.where(), ": compress_rates"));
  const std::pair<const char*, int64_t> wanted[] = {{"compressed_sparse_attention", 4},
                                                    {"heavily_compressed_attention", 128}};
  for (const auto& [key, want] : wanted) {
    const int64_t rate = rates.Int(key, kPositionLimits).value_or(want);
    if (rate == want) continue;
    return Unsupported(rates, absl::StrCat(key, ": ", rate, ", supported is ", want));
  }
  return rates.status();
}

// Index in `names` of each layer's word in the list `key`; empty when the list is absent or bad.
std::vector<size_t> LayerWords(JsonFields& fields, const char* key, size_t num_layers,
                               const std::vector<std::string>& names) {
  std::vector<size_t> indices;
  const std::vector<std::string> words = fields.Strings(key);
  if (!fields.status().ok() || fields.Find(key) == nullptr) return {};
  if (words.size() != num_layers) {
    fields.Fail(key, absl::StrCat("has ", words.size(), " entries for ", num_layers, " layers"));
    return {};
  }
  for (const std::string& word : words) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      fields.Fail(key, absl::StrCat(Quoted(word), " is no kind of layer of DeepSeek-V4"));
      return {};
    }
    indices.push_back(static_cast<size_t>(found - names.begin()));
  }
  return indices;
}

absl::Status ReadAttentionKinds(JsonFields& fields, DeepSeekV4Config& config) {
  const bool has_ratios = fields.Find("compress_ratios") != nullptr;
  if (has_ratios) RETURN_IF_ERROR(ReadRatios(fields, config));
  RETURN_IF_ERROR(CheckRates(fields));
  const std::vector<size_t> kinds = LayerWords(
      fields, "layer_types", config.layers.size(),
      {"sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"});
  if (!has_ratios && fields.Find("layer_types") == nullptr) {
    fields.Fail("compress_ratios", "is missing, and so is layer_types");
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto kind = static_cast<DeepSeekV4Attention>(kinds[i]);
    if (has_ratios && config.layers[i].attention != kind) {
      fields.Fail("layer_types",
                  absl::StrCat("layer ", i, " is of ratio ", CompressRatio(kind), ", but of ratio ",
                               CompressRatio(config.layers[i].attention), " by compress_ratios"));
    }
    config.layers[i].attention = kind;
  }
  return fields.status();
}

absl::Status ReadRouterKinds(JsonFields& fields, DeepSeekV4Config& config) {
  const auto num_layers = static_cast<int64_t>(config.layers.size());
  const std::optional<int64_t> num_hash = fields.Int("num_hash_layers", {0, num_layers});
  const std::vector<size_t> kinds =
      LayerWords(fields, "mlp_layer_types", config.layers.size(), {"hash_moe", "moe"});
  if (!num_hash.has_value() && kinds.empty()) {
    fields.Fail("num_hash_layers", "is missing, and so is mlp_layer_types");
  }
  RETURN_IF_ERROR(fields.status());
  for (int64_t i = 0; i < num_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto by_count =
        i < num_hash.value_or(0) ? DeepSeekV4Router::kHash : DeepSeekV4Router::kScore;
    config.layers[at].router = kinds.empty() ? by_count : static_cast<DeepSeekV4Router>(kinds[at]);
    if (num_hash.has_value() && config.layers[at].router != by_count) {
      fields.Fail("mlp_layer_types",
                  absl::StrCat("layer ", i, " contradicts num_hash_layers ", *num_hash));
    }
  }
  return fields.status();
}

// `scaling` is an object with a rope type; its theta is the caller's.
absl::Status ReadRopeType(JsonFields& scaling, DeepSeekV4Rope& rope) {
  std::optional<std::string> type = scaling.String("rope_type");
  if (!type.has_value()) type = scaling.String("type");
  RETURN_IF_ERROR(scaling.status());
  if (!type.has_value()) scaling.Fail("rope_type", "is missing");
  if (type.value_or("default") == "default") return scaling.status();
  if (*type != "yarn") {
    return Unsupported(scaling, absl::StrCat("rope type ", Quoted(*type),
                                             " is not supported; supported are default, yarn"));
  }
  rope.yarn = true;
  rope.factor = RequiredNumber(scaling, "factor", {1.0, 1e6});
  rope.original_max_position =
      Required(scaling, "original_max_position_embeddings", kPositionLimits);
  rope.beta_fast = RequiredNumber(scaling, "beta_fast", kFactorLimits);
  rope.beta_slow = RequiredNumber(scaling, "beta_slow", kFactorLimits);
  if (scaling.status().ok() && rope.beta_fast <= rope.beta_slow) {
    scaling.Fail("beta_fast", absl::StrCat(rope.beta_fast, ", want more than the ", rope.beta_slow,
                                           " of beta_slow"));
  }
  const double attention = scaling.Number("attention_factor", kFactorLimits).value_or(1.0);
  if (attention != 1.0) {
    return Unsupported(scaling, absl::StrCat("attention_factor: ", attention, ", supported is 1"));
  }
  return scaling.status();
}

struct Ropes {
  DeepSeekV4Rope window;
  DeepSeekV4Rope compress;

  bool operator==(const Ropes&) const = default;
};

// rope_theta, compress_rope_theta, and one object `key` that is about the second alone.
absl::StatusOr<Ropes> ReadFlatRopes(JsonFields& fields, const char* key) {
  Ropes ropes;
  ropes.window.theta = RequiredNumber(fields, "rope_theta", kThetaLimits);
  ropes.compress.theta = RequiredNumber(fields, "compress_rope_theta", kThetaLimits);
  const Json* object = fields.Object(key);
  if (object == nullptr) fields.Fail(key, "is missing");
  RETURN_IF_ERROR(fields.status());
  JsonFields scaling(*object, absl::StrCat(fields.where(), ": ", key));
  RETURN_IF_ERROR(ReadRopeType(scaling, ropes.compress));
  return ropes;
}

// {"main": {...}, "compress": {...}}, each whole.
absl::StatusOr<Ropes> ReadNestedRopes(JsonFields& parameters) {
  Ropes ropes;
  for (const auto& [key, rope] :
       {std::pair("main", &ropes.window), std::pair("compress", &ropes.compress)}) {
    const Json* object = parameters.Object(key);
    if (object == nullptr) parameters.Fail(key, "is missing");
    RETURN_IF_ERROR(parameters.status());
    JsonFields part(*object, absl::StrCat(parameters.where(), ": ", key));
    rope->theta = RequiredNumber(part, "rope_theta", kThetaLimits);
    RETURN_IF_ERROR(ReadRopeType(part, *rope));
    // Transformers computes one where none is given, and the model has none.
    if (rope->yarn && part.Find("attention_factor") == nullptr) {
      part.Fail("attention_factor", "is missing, want 1");
    }
    RETURN_IF_ERROR(part.status());
  }
  if (ropes.window.yarn) {
    return Unsupported(parameters, "main: rope type 'yarn', supported is 'default'");
  }
  return ropes;
}

absl::Status ReadRopes(JsonFields& fields, DeepSeekV4Config& config) {
  const Json* nested = fields.Object("rope_parameters");
  RETURN_IF_ERROR(fields.status());
  const bool is_flat =
      nested != nullptr && !nested->contains("main") && !nested->contains("compress");
  Ropes ropes;
  if (nested == nullptr || is_flat) {
    ASSIGN_OR_RETURN(ropes, ReadFlatRopes(fields, is_flat ? "rope_parameters" : "rope_scaling"));
  } else {
    JsonFields parameters(*nested, absl::StrCat(fields.where(), ": rope_parameters"));
    ASSIGN_OR_RETURN(ropes, ReadNestedRopes(parameters));
    const std::pair<const char*, double> thetas[] = {{"rope_theta", ropes.window.theta},
                                                     {"compress_rope_theta", ropes.compress.theta}};
    for (const auto& [key, theta] : thetas) {
      if (fields.Number(key, kThetaLimits).value_or(theta) == theta) continue;
      fields.Fail(key, absl::StrCat("contradicts the ", theta, " of rope_parameters"));
    }
  }
  if (nested != nullptr && fields.Find("rope_scaling") != nullptr) {
    // Both spellings: they must say the same.
    ASSIGN_OR_RETURN(Ropes other, ReadFlatRopes(fields, "rope_scaling"));
    if (!(other == ropes)) fields.Fail("rope_scaling", "contradicts rope_parameters");
  }
  config.window_rope = ropes.window;
  config.compress_rope = ropes.compress;
  return fields.status();
}

absl::Status ReadDTypeAndTokens(JsonFields& fields, DeepSeekV4Config& config) {
  const char* key = fields.Find("torch_dtype") != nullptr ? "torch_dtype" : "dtype";
  const std::string dtype = fields.String(key).value_or("bfloat16");
  if (dtype != "bfloat16" && dtype != "float32") {
    return Unsupported(fields,
                       absl::StrCat(key, ": ", Quoted(dtype), ", supported are bfloat16, float32"));
  }
  config.dtype = dtype == "float32" ? DType::kF32 : DType::kBF16;
  const IntLimits limits = {-1, config.vocab_size - 1};  // -1 is how some files say "none"
  config.bos_token_id = static_cast<int32_t>(fields.Int("bos_token_id", limits).value_or(-1));
  config.eos_token_ids = fields.IntOrInts("eos_token_id", limits);
  std::erase(config.eos_token_ids, -1);
  return fields.status();
}

}  // namespace

bool NamesDeepSeekV4(const JsonFields& fields) {
  const Json* architectures = fields.Find("architectures");
  const bool by_architecture = architectures != nullptr && architectures->is_array() &&
                               std::any_of(architectures->begin(), architectures->end(),
                                           [](const Json& name) { return HasFamilyPrefix(&name); });
  return by_architecture || HasFamilyPrefix(fields.Find("model_type"));
}

absl::StatusOr<DeepSeekV4Config> ParseDeepSeekV4Config(const ConfigText& text,
                                                       const std::optional<ConfigText>& hf_quant) {
  ASSIGN_OR_RETURN(const Json root, ParseJsonObject(text.json, text.where));
  JsonFields fields(root, text.where);
  DeepSeekV4Config config;
  RETURN_IF_ERROR(CheckFamily(fields, root));
  RETURN_IF_ERROR(CheckArithmetic(fields));
  config.layers.resize(static_cast<size_t>(Required(fields, "num_hidden_layers", kLayerLimits)));
  ReadSizes(fields, config);
  RETURN_IF_ERROR(fields.status());
  ReadRopeDim(fields, config);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ReadAttentionKinds(fields, config));
  RETURN_IF_ERROR(ReadRouterKinds(fields, config));
  RETURN_IF_ERROR(ReadRopes(fields, config));
  RETURN_IF_ERROR(ReadDTypeAndTokens(fields, config));
  if (!hf_quant.has_value()) {
    RETURN_IF_ERROR(ReadDeepSeekV4Quantization(fields, nullptr, config));
    return config;
  }
  ASSIGN_OR_RETURN(const Json sibling_root, ParseJsonObject(hf_quant->json, hf_quant->where));
  JsonFields sibling(sibling_root, hf_quant->where);
  RETURN_IF_ERROR(ReadDeepSeekV4Quantization(fields, &sibling, config));
  return config;
}

}  // namespace millrace
