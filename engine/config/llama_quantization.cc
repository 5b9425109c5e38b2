#include "engine/config/llama_quantization.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/config/quantization_fields.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// Remembers a pattern that cannot be matched as an error of `key`.
ModulePatterns Patterns(JsonFields& fields, const char* key, PatternSyntax syntax) {
  ModulePatterns patterns = {syntax, fields.Strings(key)};
  const absl::Status status = CheckPatterns(patterns);
  if (!status.ok()) fields.Fail(key, std::string(status.message()));
  return patterns;
}

// activation_scheme: "static" or "dynamic".
absl::StatusOr<bool> ReadStatic(JsonFields& fields) {
  const std::string scheme = fields.String("activation_scheme").value_or("dynamic");
  RETURN_IF_ERROR(fields.status());
  if (scheme == "static" || scheme == "dynamic") return scheme == "static";
  return Unsupported(fields, absl::StrCat("activation_scheme: ", Quoted(scheme),
                                          ", supported are dynamic, static"));
}

// kv_cache_scheme as compressed-tensors has it: whether of E4M3 with scales from the checkpoint.
absl::StatusOr<bool> ReadCacheScheme(JsonFields& scheme) {
  const Json* dynamic = scheme.Find("dynamic");  // false, true or "local"
  const std::string strategy = scheme.String("strategy").value_or("tensor");
  const bool e4m3 = scheme.Int("num_bits", {1, 64}) == 8 && scheme.String("type") == "float" &&
                    (dynamic == nullptr || *dynamic == false) &&
                    (strategy == "tensor" || strategy == "attn_head");
  RETURN_IF_ERROR(scheme.status());
  return e4m3;
}

// Whether kv_cache_quant_algo or kv_cache_scheme, which is an object or like the former a name
// ("static" from AutoFP8), asks for a cache of E4M3 with scales from the checkpoint. Others are
// served with floats, which hold all that those would.
absl::StatusOr<bool> ReadCache(JsonFields& quantization) {
  std::string algorithm = quantization.String("kv_cache_quant_algo").value_or("");
  const Json* scheme = quantization.Find("kv_cache_scheme");
  if (scheme != nullptr && scheme->is_string()) {
    algorithm = scheme->get<std::string>();
  } else if (const Json* object = quantization.Object("kv_cache_scheme"); object != nullptr) {
    JsonFields fields(*object, absl::StrCat(quantization.where(), ": kv_cache_scheme"));
    return ReadCacheScheme(fields);
  }
  RETURN_IF_ERROR(quantization.status());
  absl::AsciiStrToUpper(&algorithm);
  return algorithm == "FP8" || algorithm == "STATIC";
}

// quant_method fp8: blocks as DeepSeek's and Qwen's releases have them, or one scale a matrix.
absl::StatusOr<Fp8Config> ReadFp8(JsonFields& quantization) {
  RETURN_IF_ERROR(WantString(quantization, "fmt", "e4m3"));
  if (quantization.Find("scale_fmt") != nullptr) {
    return Unsupported(quantization, "scale_fmt: scales of LLaMA's blocks are plain floats");
  }
  Fp8Scheme scheme = {.weight = Fp8WeightScale::kTensor};
  ASSIGN_OR_RETURN(scheme.static_input, ReadStatic(quantization));
  if (quantization.Find("weight_block_size") != nullptr) {
    RETURN_IF_ERROR(WantBlocks(quantization, "weight_block_size"));
    if (scheme.static_input) {
      return Unsupported(quantization, "activation_scheme: 'static' with blocks of weights");
    }
    scheme.weight = Fp8WeightScale::kBlock;
    scheme.scale_name = "weight_scale_inv";
  }
  Fp8Config config = {.method = "fp8", .groups = {{std::nullopt, scheme}}};
  ASSIGN_OR_RETURN(config.cache, ReadCache(quantization));
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    ModulePatterns some = Patterns(quantization, key, PatternSyntax::kGlob);
    std::move(some.patterns.begin(), some.patterns.end(),
              std::back_inserter(config.excluded.patterns));
  }
  RETURN_IF_ERROR(quantization.status());
  return config;
}

// weights or input_activations of a group: E4M3, symmetric.
absl::Status CheckE4M3(JsonFields& args) {
  const int64_t bits = args.RequiredInt("num_bits", {1, 64});
  RETURN_IF_ERROR(args.status());
  if (bits != 8) return Unsupported(args, absl::StrCat("num_bits: ", bits, ", supported is 8"));
  RETURN_IF_ERROR(WantString(args, "type", "float"));
  if (!args.Bool("symmetric").value_or(true)) {
    return Unsupported(args, "symmetric: false, supported is true");
  }
  return args.status();
}

absl::StatusOr<Fp8WeightScale> ReadWeights(JsonFields& weights) {
  RETURN_IF_ERROR(CheckE4M3(weights));
  const std::string strategy = weights.String("strategy").value_or("");
  RETURN_IF_ERROR(weights.status());
  if (strategy == "channel") return Fp8WeightScale::kChannel;
  if (strategy == "tensor") return Fp8WeightScale::kTensor;
  if (strategy == "block") {
    RETURN_IF_ERROR(WantBlocks(weights, "block_structure"));
    return Fp8WeightScale::kBlock;
  }
  return Unsupported(weights, absl::StrCat("strategy: ", Quoted(strategy),
                                           ", supported are channel, tensor, block"));
}

// Which of the ways to scale activations, dynamic ones all alike: README.md says which are used.
absl::StatusOr<bool> ReadActivations(JsonFields& activations, Fp8WeightScale weight) {
  RETURN_IF_ERROR(CheckE4M3(activations));
  const bool dynamic = activations.Bool("dynamic").value_or(false);
  const std::string strategy = activations.String("strategy").value_or("tensor");
  RETURN_IF_ERROR(activations.status());
  const bool blocks = weight == Fp8WeightScale::kBlock;
  const bool known = strategy == "tensor" || strategy == "token" || (blocks && strategy == "group");
  if (!known || (!dynamic && (blocks || strategy != "tensor"))) {
    return Unsupported(activations, absl::StrCat(dynamic ? "dynamic" : "static", " scales of ",
                                                 Quoted(strategy), " with these weights"));
  }
  return !dynamic;
}

absl::StatusOr<Fp8Group> ReadGroup(JsonFields& group) {
  const Json* weights = group.Object("weights");
  if (weights == nullptr) group.Fail("weights", "is missing");
  const Json* activations = group.Object("input_activations");
  ModulePatterns targets = Patterns(group, "targets", PatternSyntax::kRegex);
  RETURN_IF_ERROR(group.status());
  if (activations == nullptr) {
    return Unsupported(group, "input_activations: weights alone are not supported as FP8");
  }
  if (group.Object("output_activations") != nullptr) {
    return Unsupported(group, "output_activations: only inputs are quantised");
  }
  RETURN_IF_ERROR(group.status());
  Fp8Group read;
  // The class of module that all matrices of a decoder layer are.
  const std::vector<std::string>& names = targets.patterns;
  if (std::find(names.begin(), names.end(), "Linear") == names.end()) {
    read.targets = std::move(targets);
  }
  JsonFields weight_fields(*weights, absl::StrCat(group.where(), ": weights"));
  ASSIGN_OR_RETURN(read.scheme.weight, ReadWeights(weight_fields));
  JsonFields input_fields(*activations, absl::StrCat(group.where(), ": input_activations"));
  ASSIGN_OR_RETURN(read.scheme.static_input, ReadActivations(input_fields, read.scheme.weight));
  return read;
}

absl::StatusOr<Fp8Config> ReadCompressedTensors(JsonFields& quantization) {
  const std::string format = quantization.String("format").value_or("float-quantized");
  RETURN_IF_ERROR(quantization.status());
  if (format != "float-quantized" && format != "naive-quantized" && format != "mixed-precision") {
    return Unsupported(quantization, absl::StrCat("format: ", Quoted(format),
                                                  ", supported is float-quantized (FP8)"));
  }
  Fp8Config config = {.method = "compressed-tensors"};
  const Json* groups = quantization.Object("config_groups");
  if (groups == nullptr) quantization.Fail("config_groups", "is missing");
  RETURN_IF_ERROR(quantization.status());
  for (const auto& [name, value] : groups->items()) {
    const std::string where = absl::StrCat(quantization.where(), ": config_groups: ", Quoted(name));
    if (!value.is_object()) return absl::InvalidArgumentError(where + ": is not an object");
    JsonFields fields(value, where);
    ASSIGN_OR_RETURN(Fp8Group group, ReadGroup(fields));
    config.groups.push_back(std::move(group));
  }
  config.excluded = Patterns(quantization, "ignore", PatternSyntax::kRegex);
  ASSIGN_OR_RETURN(config.cache, ReadCache(quantization));
  RETURN_IF_ERROR(quantization.status());
  return config;
}

// `exclude_key`: config.json and hf_quant_config.json spell the list differently.
absl::StatusOr<Fp8Config> ReadModelOpt(JsonFields& fields, const char* exclude_key) {
  const std::string algorithm =
      absl::AsciiStrToUpper(fields.String("quant_algo").value_or(std::string()));
  RETURN_IF_ERROR(fields.status());
  Fp8Scheme scheme;
  if (algorithm == "FP8") {
    scheme = {.weight = Fp8WeightScale::kTensor, .static_input = true};
  } else if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") {
    scheme = {.weight = Fp8WeightScale::kChannel};
  } else {
    return Unsupported(fields, absl::StrCat("quant_algo: ", Quoted(algorithm),
                                            ", supported are FP8, FP8_PER_CHANNEL_PER_TOKEN"));
  }
  Fp8Config config = {.method = "modelopt", .groups = {{std::nullopt, scheme}}};
  config.excluded = Patterns(fields, exclude_key, PatternSyntax::kGlob);
  ASSIGN_OR_RETURN(config.cache, ReadCache(fields));
  RETURN_IF_ERROR(fields.status());
  return config;
}

absl::StatusOr<Fp8Config> ReadHfQuant(JsonFields& hf_quant) {
  const Json* object = hf_quant.Object("quantization");
  if (object == nullptr) hf_quant.Fail("quantization", "is missing");
  RETURN_IF_ERROR(hf_quant.status());
  JsonFields fields(*object, absl::StrCat(hf_quant.where(), ": quantization"));
  return ReadModelOpt(fields, "exclude_modules");
}

}  // namespace

absl::StatusOr<std::optional<Fp8Config>> ReadLlamaQuantization(JsonFields& fields,
                                                               JsonFields* hf_quant) {
  const char* const key = QuantizationKey(fields);
  const Json* object = fields.Object(key);
  RETURN_IF_ERROR(fields.status());
  if (object == nullptr) {
    if (hf_quant == nullptr) return std::nullopt;
    return ReadHfQuant(*hf_quant);
  }
  JsonFields quantization(*object, absl::StrCat(fields.where(), ": ", key));
  const std::string method = quantization.String("quant_method").value_or("");
  RETURN_IF_ERROR(quantization.status());
  if (method == "modelopt") {
    ASSIGN_OR_RETURN(Fp8Config config, ReadModelOpt(quantization, "ignore"));
    if (hf_quant == nullptr) return config;
    ASSIGN_OR_RETURN(const Fp8Config other, ReadHfQuant(*hf_quant));
    if (!(other.groups[0].scheme == config.groups[0].scheme)) {
      quantization.Fail("quant_algo", absl::StrCat("contradicts ", hf_quant->where()));
    }
    RETURN_IF_ERROR(quantization.status());
    config.cache = config.cache || other.cache;  // some write it into one of them
    return config;
  }
  if (hf_quant != nullptr) {
    quantization.Fail("quant_method",
                      absl::StrCat(Quoted(method), " contradicts ", hf_quant->where()));
  }
  RETURN_IF_ERROR(quantization.status());
  if (method == "fp8") return ReadFp8(quantization);
  if (method == "compressed-tensors") return ReadCompressedTensors(quantization);
  return Unsupported(quantization,
                     absl::StrCat("quant_method: ", Quoted(method),
                                  " is not supported; supported are fp8, "
                                  "compressed-tensors, modelopt, or no quantisation"));
}

}  // namespace millrace
