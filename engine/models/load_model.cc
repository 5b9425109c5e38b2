#include "engine/models/load_model.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/models/deepseek_v4.h"
#include "engine/models/llama.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

struct ModelEntry {
  ModelFamily family;
  absl::StatusOr<std::unique_ptr<Model>> (*load)(const ModelConfig& config,
                                                 const ModelPlacement& placement, LoadContext& ctx);
  bool (*is_ignorable)(const ModelConfig& config, const std::string& tensor);
};

// One row per model. The config parser has refused every architecture without a family.
constexpr ModelEntry kModels[] = {
    {ModelFamily::kLlama, LlamaModel::Load, LlamaModel::IsIgnorable},
    {ModelFamily::kDeepSeekV4, DeepSeekV4Model::Load, DeepSeekV4Model::IsIgnorable},
};

absl::StatusOr<const ModelEntry*> FindModel(const ModelConfig& config) {
  for (const ModelEntry& entry : kModels) {
    if (entry.family == config.family) return &entry;
  }
  return absl::UnimplementedError(
      absl::StrCat("model_type \"", config.model_type, "\" has no model"));
}

LoadContext ContextOf(WeightLoader& loader, const ModelConfig& config,
                      const ModelPlacement& placement, DeviceType device) {
  return {.weights = loader,
          .rank = placement.rank,
          .size = placement.size,
          .weight_dtype = placement.weight_dtype,
          .vector_dtype = ActivationDType(device),
          .device = device,
          .rounding = placement.numerics == Numerics::kServing ? ActivationRounding::kFp8Per128
                                                               : ActivationRounding::kNone,
          .fp8 = config.fp8.has_value() ? &*config.fp8 : nullptr,
          .quantize = placement.quantize,
          .expert_parallel = placement.expert_parallel,
          .world_rank = placement.world_rank,
          .world_size = placement.world_size};
}

}  // namespace

DType DefaultCacheDType(const ModelConfig& config, Numerics numerics, DType weight_dtype) {
  if (numerics == Numerics::kReference) return weight_dtype;
  if (config.family == ModelFamily::kLlama) {
    return config.fp8.has_value() && config.fp8->cache ? DType::kU8 : weight_dtype;
  }
  return DeepSeekV4Model::ServedCacheDType(*config.deepseek_v4, weight_dtype);
}

absl::StatusOr<LoadedModel> LoadModel(const ModelConfig& config, const ModelPlacement& placement,
                                      const WeightSource& source, Device& device,
                                      const LoadHooks& hooks) {
  ASSIGN_OR_RETURN(const ModelEntry* entry, FindModel(config));

  if (placement.quantize && config.family != ModelFamily::kLlama) {
    return absl::InvalidArgumentError(
        "--quantization fp8: this model is served in the formats of its checkpoint");
  }
  LoadedModel loaded;
  WeightLoader recorder(source);
  LoadContext dry = ContextOf(recorder, config, placement, device.type());
  ASSIGN_OR_RETURN(loaded.model, entry->load(config, placement, dry));
  loaded.weight_bytes = recorder.bytes();
  RETURN_IF_ERROR(CheckTensors(source, recorder.tensors(), [&](const std::string& name) {
    const bool ignorable = entry->is_ignorable(config, name);
    if (ignorable) ++loaded.skipped_tensors;
    return ignorable;
  }));
  if (hooks.check) RETURN_IF_ERROR(hooks.check(loaded));

  WeightLoader reader(source, device, recorder.bytes(), hooks.progress);
  LoadContext ctx = ContextOf(reader, config, placement, device.type());
  ASSIGN_OR_RETURN(loaded.model, entry->load(config, placement, ctx));
  return loaded;
}

}  // namespace millrace
