#include "engine/config/deepseek_v4_quantization.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/config/quantization_fields.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int64_t kNvFp4Group = 16;
constexpr int64_t kMxFp4Group = 32;

// What one of the two files says about NVFP4. Unset: it is silent.
struct NvFp4Text {
  std::optional<std::string> moe_algo;
  std::optional<std::vector<std::string>> layers;  // sorted
  std::optional<std::vector<std::string>> ignore;  // sorted
};

void SetAllExperts(DeepSeekV4Config& config, DeepSeekV4Storage storage) {
  for (DeepSeekV4Layer& layer : config.layers) layer.experts = storage;
}

absl::Status WantGroup16(JsonFields& fields) {
  const int64_t group = fields.Int("group_size", kGroupLimits).value_or(kNvFp4Group);
  if (group == kNvFp4Group) return fields.status();
  return Unsupported(fields, absl::StrCat("group_size: ", group, ", supported is ", kNvFp4Group));
}

std::vector<std::string> Sorted(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  return words;
}

// `ignore_key`: config.json and hf_quant_config.json spell the list differently.
absl::StatusOr<NvFp4Text> ReadNvFp4(JsonFields& fields, const char* ignore_key) {
  NvFp4Text text;
  text.moe_algo = fields.String("moe_quant_algo");
  RETURN_IF_ERROR(WantString(fields, "moe_quant_algo", "NVFP4"));
  RETURN_IF_ERROR(WantString(fields, "quant_algo", "MIXED_PRECISION"));
  RETURN_IF_ERROR(WantGroup16(fields));
  if (fields.Find("kv_cache_quant_algo") != nullptr) {
    return Unsupported(fields, "kv_cache_quant_algo: a quantised cache is not supported");
  }
  if (fields.Find(ignore_key) != nullptr) text.ignore = Sorted(fields.Strings(ignore_key));
  const Json* layers = fields.Object("quantized_layers");
  RETURN_IF_ERROR(fields.status());
  if (layers == nullptr) return text;
  text.layers.emplace();
  for (const auto& [name, value] : layers->items()) {
    const std::string where = absl::StrCat(fields.where(), ": quantized_layers: ", Quoted(name));
    if (!value.is_object()) return absl::InvalidArgumentError(where + ": is not an object");
    JsonFields layer(value, where);
    RETURN_IF_ERROR(WantString(layer, "quant_algo", "NVFP4"));
    RETURN_IF_ERROR(WantGroup16(layer));
    text.layers->push_back(name);
  }
  std::sort(text.layers->begin(), text.layers->end());
  return text;
}

// The layer N of "layers.N.ffn.experts" or "model.layers.N.mlp.experts"; -1 of any other name.
int64_t LayerOfExperts(std::string name) {
  const auto strip = [&name](const std::string& part, bool front) {
    if (name.size() < part.size()) return false;
    const size_t at = front ? 0 : name.size() - part.size();
    if (name.compare(at, part.size(), part) != 0) return false;
    name.erase(at, part.size());
    return true;
  };
  strip("model.", true);
  if (!strip("layers.", true)) return -1;
  if (!strip(".ffn.experts", false) && !strip(".mlp.experts", false)) return -1;
  int32_t layer = -1;
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  return is_number && absl::SimpleAtoi(name, &layer) ? layer : -1;
}

// Experts of the named layers are NVFP4; those of the others stay as they are.
void SetNvFp4Layers(JsonFields& fields, const std::vector<std::string>& names,
                    DeepSeekV4Config& config) {
  for (const std::string& name : names) {
    const int64_t layer = LayerOfExperts(name);
    if (layer < 0 || layer >= static_cast<int64_t>(config.layers.size())) {
      fields.Fail("quantized_layers", absl::StrCat(Quoted(name), " names no routed experts of the ",
                                                   config.layers.size(), " layers"));
      return;
    }
    config.layers[static_cast<size_t>(layer)].experts = DeepSeekV4Storage::kNvFp4;
  }
}

// Both files, where both speak, must say the same.
void Merge(JsonFields& hf, const NvFp4Text& other, NvFp4Text& text) {
  const auto merge = [&hf](const char* key, const auto& from, auto& to) {
    if (from.has_value() && to.has_value() && *from != *to) {
      hf.Fail(key, "contradicts quantization_config of config.json");
    }
    if (!to.has_value()) to = from;
  };
  merge("moe_quant_algo", other.moe_algo, text.moe_algo);
  merge("quantized_layers", other.layers, text.layers);
  merge("exclude_modules", other.ignore, text.ignore);
}

// `quantization` is quantization_config with quant_method fp8: what every published form has.
absl::Status ReadFp8(JsonFields& quantization, const std::string& expert_dtype,
                     DeepSeekV4Config& config) {
  RETURN_IF_ERROR(WantString(quantization, "fmt", "e4m3"));
  RETURN_IF_ERROR(WantString(quantization, "activation_scheme", "dynamic"));
  RETURN_IF_ERROR(WantString(quantization, "scale_fmt", "ue8m0"));
  RETURN_IF_ERROR(WantBlocks(quantization, "weight_block_size"));
  config.quantization.dense = DeepSeekV4Storage::kFp8Block;
  if (expert_dtype == "fp8") {
    // The base models: f32 scales everywhere, whatever scale_fmt says of activations.
    config.quantization.block_scale = DeepSeekV4BlockScale::kF32;
    SetAllExperts(config, DeepSeekV4Storage::kFp8Block);
    return quantization.status();
  }
  if (quantization.Find("scale_fmt") == nullptr) quantization.Fail("scale_fmt", "is missing");
  config.quantization.block_scale = DeepSeekV4BlockScale::kE8M0;
  SetAllExperts(config, DeepSeekV4Storage::kMxFp4);
  return quantization.status();
}

absl::Status ReadModelOpt(JsonFields& quantization, JsonFields* hf_quant,
                          const std::string& expert_dtype, DeepSeekV4Config& config) {
  ASSIGN_OR_RETURN(NvFp4Text text, ReadNvFp4(quantization, "ignore"));
  if (hf_quant != nullptr) {
    const Json* object = hf_quant->Object("quantization");
    if (object == nullptr) hf_quant->Fail("quantization", "is missing");
    RETURN_IF_ERROR(hf_quant->status());
    JsonFields hf(*object, absl::StrCat(hf_quant->where(), ": quantization"));
    ASSIGN_OR_RETURN(const NvFp4Text other, ReadNvFp4(hf, "exclude_modules"));
    if (!other.moe_algo.has_value()) hf.Fail("moe_quant_algo", "is missing");
    Merge(hf, other, text);
    RETURN_IF_ERROR(hf.status());
  }
  if (!text.moe_algo.has_value()) {
    if (text.layers.has_value()) quantization.Fail("moe_quant_algo", "is missing");
    return quantization.status();
  }
  if (expert_dtype == "fp8") {
    quantization.Fail("moe_quant_algo", "'NVFP4' contradicts expert_dtype 'fp8'");
  }
  config.quantization.nvfp4_ignore = text.ignore.value_or(std::vector<std::string>{});
  if (text.layers.has_value()) {
    SetNvFp4Layers(quantization, *text.layers, config);
  } else {
    SetAllExperts(config, DeepSeekV4Storage::kNvFp4);
  }
  return quantization.status();
}

// One of config_groups: NVFP4 or FP8 blocks. Tells which.
absl::StatusOr<DeepSeekV4Storage> ReadGroup(JsonFields& group) {
  const Json* object = group.Object("weights");
  if (object == nullptr) group.Fail("weights", "is missing");
  RETURN_IF_ERROR(group.status());
  JsonFields weights(*object, absl::StrCat(group.where(), ": weights"));
  const int64_t bits = weights.RequiredInt("num_bits", {1, 64});
  RETURN_IF_ERROR(weights.status());
  RETURN_IF_ERROR(WantString(weights, "type", "float"));
  if (bits == 4) {
    RETURN_IF_ERROR(WantString(weights, "strategy", "tensor_group"));
    RETURN_IF_ERROR(WantGroup16(weights));
    return DeepSeekV4Storage::kNvFp4;
  }
  if (bits == 8) {
    RETURN_IF_ERROR(WantString(weights, "strategy", "block"));
    RETURN_IF_ERROR(WantBlocks(weights, "block_structure"));
    return DeepSeekV4Storage::kFp8Block;
  }
  return Unsupported(weights, absl::StrCat("num_bits: ", bits, ", supported are 4 and 8"));
}

absl::Status ReadCompressedTensors(JsonFields& quantization, const std::string& expert_dtype,
                                   DeepSeekV4Config& config) {
  const std::string format = quantization.String("format").value_or("");
  if (format != "nvfp4-pack-quantized" && format != "mixed-precision") {
    RETURN_IF_ERROR(quantization.status());
    return Unsupported(quantization,
                       absl::StrCat("format: ", Quoted(format),
                                    ", supported are nvfp4-pack-quantized, mixed-precision"));
  }
  if (quantization.Find("kv_cache_scheme") != nullptr) {
    return Unsupported(quantization, "kv_cache_scheme: a quantised cache is not supported");
  }
  config.quantization.nvfp4_ignore = quantization.Strings("ignore");
  config.quantization.nvfp4_keys = DeepSeekV4NvFp4Keys::kCompressedTensors;
  config.quantization.block_scale = DeepSeekV4BlockScale::kF32;
  const Json* groups = quantization.Object("config_groups");
  if (groups == nullptr) quantization.Fail("config_groups", "is missing");
  RETURN_IF_ERROR(quantization.status());
  bool has_nvfp4 = false;
  for (const auto& [name, value] : groups->items()) {
    const std::string where = absl::StrCat(quantization.where(), ": config_groups: ", Quoted(name));
    if (!value.is_object()) return absl::InvalidArgumentError(where + ": is not an object");
    JsonFields group(value, where);
    ASSIGN_OR_RETURN(const DeepSeekV4Storage storage, ReadGroup(group));
    has_nvfp4 = has_nvfp4 || storage == DeepSeekV4Storage::kNvFp4;
    if (storage == DeepSeekV4Storage::kFp8Block) config.quantization.dense = storage;
  }
  if (!has_nvfp4) {
    return Unsupported(quantization, "config_groups: no group is NVFP4, the supported format");
  }
  if (expert_dtype == "fp8") {
    quantization.Fail("config_groups", "NVFP4 contradicts expert_dtype 'fp8'");
  }
  SetAllExperts(config, DeepSeekV4Storage::kNvFp4);
  return quantization.status();
}

// Nothing but the files' silence makes a checkpoint unquantised.
absl::Status CheckPlain(JsonFields& fields, const JsonFields* hf_quant,
                        const std::string& expert_dtype) {
  if (expert_dtype == "fp4" || expert_dtype == "fp8") {
    fields.Fail("expert_dtype",
                absl::StrCat(Quoted(expert_dtype), ", but there is no quantization_config"));
  }
  if (hf_quant != nullptr) {
    fields.Fail("quantization_config", absl::StrCat("is missing beside ", hf_quant->where()));
  }
  return fields.status();
}

absl::Status CheckWidths(JsonFields& fields, const DeepSeekV4Config& config) {
  int64_t group = 1;
  for (const DeepSeekV4Layer& layer : config.layers) {
    if (layer.experts == DeepSeekV4Storage::kNvFp4) group = std::max(group, kNvFp4Group);
    if (layer.experts == DeepSeekV4Storage::kMxFp4) group = std::max(group, kMxFp4Group);
  }
  const auto check = [&](const char* key, int64_t width) {
    if (width % group == 0) return;
    fields.Fail(key, absl::StrCat(width, " is not a multiple of the ", group,
                                  " inputs that share a scale in the experts' format"));
  };
  check("hidden_size", config.hidden_size);
  check("moe_intermediate_size", config.expert_width);
  return fields.status();
}

// By quantization_config, or what older exports call compression_config.
absl::Status ReadQuantized(JsonFields& quantization, JsonFields* hf_quant,
                           const std::string& expert_dtype, DeepSeekV4Config& config) {
  const std::string method = quantization.String("quant_method").value_or("");
  RETURN_IF_ERROR(quantization.status());
  if (method == "fp8") {
    RETURN_IF_ERROR(ReadFp8(quantization, expert_dtype, config));
    return ReadModelOpt(quantization, hf_quant, expert_dtype, config);
  }
  if (method != "compressed-tensors") {
    return Unsupported(quantization, absl::StrCat("quant_method: ", Quoted(method),
                                                  ", supported are fp8, compressed-tensors"));
  }
  if (hf_quant != nullptr) {
    quantization.Fail("quant_method",
                      absl::StrCat("'compressed-tensors' contradicts ", hf_quant->where()));
  }
  RETURN_IF_ERROR(quantization.status());
  return ReadCompressedTensors(quantization, expert_dtype, config);
}

}  // namespace

absl::Status ReadDeepSeekV4Quantization(JsonFields& fields, JsonFields* hf_quant,
                                        DeepSeekV4Config& config) {
  const std::string expert_dtype = fields.String("expert_dtype").value_or("");
  const char* key = QuantizationKey(fields);
  const Json* object = fields.Object(key);
  RETURN_IF_ERROR(fields.status());
  const bool is_plain = expert_dtype == "bf16" || expert_dtype == "bfloat16";
  if (!expert_dtype.empty() && !is_plain && expert_dtype != "fp4" && expert_dtype != "fp8") {
    return Unsupported(fields, absl::StrCat("expert_dtype: ", Quoted(expert_dtype),
                                            ", supported are fp4, fp8, bf16"));
  }
  if (object == nullptr) return CheckPlain(fields, hf_quant, expert_dtype);
  if (is_plain) {
    fields.Fail("expert_dtype", absl::StrCat(Quoted(expert_dtype), " contradicts ", key));
    return fields.status();
  }
  JsonFields quantization(*object, absl::StrCat(fields.where(), ": ", key));
  RETURN_IF_ERROR(ReadQuantized(quantization, hf_quant, expert_dtype, config));
  return CheckWidths(fields, config);
}

}  // namespace millrace
