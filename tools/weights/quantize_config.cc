#include "tools/weights/quantize_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/config/json_fields.h"
#include "engine/config/read_file.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"
#include "kernels/lowp/block_formats.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 16 << 20;

absl::StatusOr<ModelLayout> LayoutOf(JsonFields& fields) {
  const std::string model_type = fields.String("model_type").value_or("");
  RETURN_IF_ERROR(fields.status());
  if (fields.Find("dspark_block_size") != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(fields.where(),
                     ": DSpark re-packs of DeepSeek-V4 are not supported: their drafter has "
                     "other tensors"));
  }
  if (model_type == "deepseek_v4") return ModelLayout::kDeepseekV4;
  if (model_type == "llama" || model_type == "mistral") return ModelLayout::kLlama;
  return absl::UnimplementedError(absl::StrCat(fields.where(), ": model_type ",
                                               QuotedTensor(model_type),
                                               " is not one of llama, mistral, deepseek_v4"));
}

Json BlockFp8(bool e8m0_scales) {
  Json config = {{"quant_method", "fp8"}, {"fmt", "e4m3"}};
  if (e8m0_scales) config["scale_fmt"] = "ue8m0";
  config["activation_scheme"] = "dynamic";
  config["weight_block_size"] = {kFp8Tile, kFp8Tile};
  return config;
}

Json Fp4Args(const char* strategy, int64_t group_size) {
  return {{"num_bits", 4},        {"type", "float"},
          {"strategy", strategy}, {"group_size", group_size},
          {"symmetric", true},    {"dynamic", false}};
}

// Activations get scales of their own, of each token.
Json CompressedFp8(const char* strategy) {
  const auto args = [](const char* of, bool dynamic) {
    return Json{{"num_bits", 8},
                {"type", "float"},
                {"strategy", of},
                {"symmetric", true},
                {"dynamic", dynamic}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", Json::array({"Linear"})},
              {"weights", args(strategy, false)},
              {"input_activations", args("token", true)},
              {"output_activations", nullptr}}}}},
          {"ignore", Json::array({"lm_head"})},
          {"kv_cache_scheme", nullptr}};
}

// Weights only: activations have not been calibrated.
Json CompressedTensors(QuantTarget target, ModelLayout layout) {
  const bool is_mxfp4 = target == QuantTarget::kMxfp4;
  const char* const format = is_mxfp4 ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized";
  Json weights = is_mxfp4 ? Fp4Args("group", kMxfp4Block) : Fp4Args("tensor_group", kNvfp4Block);
  if (is_mxfp4) weights["scale_dtype"] = "torch.uint8";
  Json targets = Json::array({"Linear"});
  Json ignore = Json::array({"lm_head"});
  if (layout == ModelLayout::kDeepseekV4) {
    targets = Json::array({"re:.*ffn\\.experts\\.\\d+\\.w[123]$"});
    ignore = Json::array({"re:.*attn.*", "re:.*shared_experts.*", "re:.*ffn\\.gate$", "head"});
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"format", format},
              {"targets", targets},
              {"weights", weights},
              {"input_activations", nullptr},
              {"output_activations", nullptr}}}}},
          {"ignore", ignore},
          {"kv_cache_scheme", nullptr}};
}

// "layers.3.ffn.experts" for each main layer, in order.
Json ExpertLayers(const std::vector<PlannedTensor>& plan) {
  std::set<int> layers;
  for (const PlannedTensor& tensor : plan) {
    if (tensor.encoding != Encoding::kNvfp4) continue;
    const std::vector<std::string> parts = absl::StrSplit(tensor.source->name, '.');
    int layer = 0;
    if (absl::SimpleAtoi(parts[1], &layer)) layers.insert(layer);
  }
  Json result = Json::object();
  for (const int layer : layers) {
    result[absl::StrCat("layers.", layer, ".ffn.experts")] = {{"quant_algo", "NVFP4"},
                                                              {"group_size", kNvfp4Block}};
  }
  return result;
}

Json Nvfp4Args() {
  return {{"num_bits", 4}, {"type", "float"}, {"group_size", kNvfp4Block}, {"dynamic", false}};
}

// NVIDIA's two files.
struct NvidiaConfigs {
  Json config;     // for quantization_config of config.json
  Json hf_config;  // hf_quant_config.json
};

NvidiaConfigs NvidiaNvfp4(ModelLayout layout, const std::vector<PlannedTensor>& plan) {
  const bool is_llama = layout == ModelLayout::kLlama;
  const Json producer = {{"name", "millrace"}, {"version", "1"}};
  Json left_out = Json::array({"lm_head"});
  if (!is_llama) left_out = {"*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"};
  Json config = is_llama ? Json{{"quant_method", "modelopt"}} : BlockFp8(true);
  Json algorithm = Json::object();
  algorithm["quant_algo"] = is_llama ? "NVFP4" : "MIXED_PRECISION";
  algorithm["kv_cache_quant_algo"] = nullptr;
  algorithm["group_size"] = kNvfp4Block;
  if (!is_llama) {
    algorithm["moe_quant_algo"] = "NVFP4";
    algorithm["quantized_layers"] = ExpertLayers(plan);
  }
  config.update(algorithm);
  config["producer"] = producer;
  config["config_groups"]["group_0"] = {{"input_activations", Nvfp4Args()},
                                        {"weights", Nvfp4Args()},
                                        {"targets", Json::array({"Linear"})}};
  config["ignore"] = left_out;
  algorithm["exclude_modules"] = left_out;
  return {std::move(config), {{"producer", producer}, {"quantization", algorithm}}};
}

NvidiaConfigs NvidiaFp8() {
  const Json producer = {{"name", "millrace"}, {"version", "1"}};
  const Json left_out = Json::array({"lm_head"});
  const Json args = {{"num_bits", 8}, {"type", "float"}, {"dynamic", false}};
  const Json group = {
      {"input_activations", args}, {"weights", args}, {"targets", Json::array({"Linear"})}};
  return {
      {{"quant_method", "modelopt"},
       {"quant_algo", "FP8"},
       {"producer", producer},
       {"config_groups", {{"group_0", group}}},
       {"ignore", left_out}},
      {{"producer", producer},
       {"quantization",
        {{"quant_algo", "FP8"}, {"kv_cache_quant_algo", nullptr}, {"exclude_modules", left_out}}}}};
}

}  // namespace

absl::StatusOr<SourceConfig> ReadSourceConfig(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/config.json");
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(const nlohmann::json root, ParseJsonObject(text, path));
  JsonFields fields(root, path);
  ASSIGN_OR_RETURN(const ModelLayout layout, LayoutOf(fields));
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (fields.Find(key) == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has ", key, ": the checkpoint is quantised already; start from bf16"));
  }
  return SourceConfig{.layout = layout, .text = std::move(text)};
}

std::map<std::string, std::string> QuantizedConfigs(const SourceConfig& source, QuantTarget target,
                                                    const std::vector<PlannedTensor>& plan) {
  Json config = Json::parse(source.text);
  const bool is_llama = source.layout == ModelLayout::kLlama;
  std::map<std::string, std::string> files;
  Json& quantization = config["quantization_config"];
  if (target == QuantTarget::kFp8) {
    quantization = BlockFp8(false);
    if (is_llama) quantization["modules_to_not_convert"] = Json::array({"lm_head"});
  } else if (target == QuantTarget::kNvfp4) {
    NvidiaConfigs nvfp4 = NvidiaNvfp4(source.layout, plan);
    quantization = std::move(nvfp4.config);
    files["hf_quant_config.json"] = nvfp4.hf_config.dump(2) + "\n";
  } else if (target == QuantTarget::kFp8Ct || target == QuantTarget::kFp8CtTensor) {
    quantization = CompressedFp8(target == QuantTarget::kFp8Ct ? "channel" : "tensor");
  } else if (target == QuantTarget::kFp8ModelOpt) {
    NvidiaConfigs fp8 = NvidiaFp8();
    quantization = std::move(fp8.config);
    files["hf_quant_config.json"] = fp8.hf_config.dump(2) + "\n";
  } else if (target == QuantTarget::kMxfp4 && !is_llama) {
    quantization = BlockFp8(true);
  } else {
    quantization = CompressedTensors(target, source.layout);
  }
  if (!is_llama) config["expert_dtype"] = target == QuantTarget::kFp8 ? "fp8" : "fp4";
  files["config.json"] = config.dump(2) + "\n";
  return files;
}

}  // namespace millrace
