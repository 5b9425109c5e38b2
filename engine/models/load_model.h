// From a model's config and weights to a model in device memory.
#ifndef ENGINE_MODELS_LOAD_MODEL_H_
#define ENGINE_MODELS_LOAD_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/config/model_config.h"
#include "engine/config/numerics.h"
#include "engine/layers/weight_loader.h"
#include "engine/models/model.h"

namespace millrace {

// Of cache rows where nobody asks for another type: that of weights, or codes where `numerics` are
// serving ones and the model was made for such a cache.
DType DefaultCacheDType(const ModelConfig& config, Numerics numerics, DType weight_dtype);

struct LoadedModel {
  std::unique_ptr<Model> model;
  int64_t weight_bytes = 0;     // of this rank, in device memory
  int64_t skipped_tensors = 0;  // of the checkpoint, that the model knows and does not use
};

// Both may be empty.
struct LoadHooks {
  // Called once everything is checked and nothing is read: `planned` has cache_spec() and
  // WorkspaceBytes(), and no weights. An error ends the load.
  std::function<absl::Status(const LoadedModel& planned)> check;
  LoadProgress progress;
};

// Reads this rank's part of the weights. Before anything is read, every tensor's name, type and
// shape is checked and the split is tried: an error then names the tensor that is missing, of
// another kind or not known to the model, or why the model cannot be cut this way. `device` must
// outlive the model. Any thread.
absl::StatusOr<LoadedModel> LoadModel(const ModelConfig& config, const ModelPlacement& placement,
                                      const WeightSource& source, Device& device,
                                      const LoadHooks& hooks);

}  // namespace millrace

#endif  // ENGINE_MODELS_LOAD_MODEL_H_
