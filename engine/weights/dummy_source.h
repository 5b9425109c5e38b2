// Made-up weights, for trying a model's shape and speed without its files.
#ifndef ENGINE_WEIGHTS_DUMMY_SOURCE_H_
#define ENGINE_WEIGHTS_DUMMY_SOURCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/model_config.h"
#include "engine/weights/weight_source.h"

namespace millrace {

// Each element depends on seed, tensor name and position alone, so every split of a model over
// ranks sees one and the same model. Bell-shaped with mean 0 and deviation 0.02 within +-0.07;
// norm weights are 1. Rounded to the stored dtype first: reading as F32 or BF16 agrees.
class DummySource final : public WeightSource {
 public:
  // `tensors`: distinct names and shapes of rank 1 or 2, data unused.
  DummySource(std::vector<TensorInfo> tensors, uint64_t seed);
  // All tensors that `config`'s family has.
  DummySource(const ModelConfig& config, uint64_t seed);

  absl::StatusOr<TensorInfo> Find(std::string_view name) const override;
  absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                    void* dst) const override;
  absl::Status ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                       void* dst) const override;
  std::vector<std::string> Names() const override;
  absl::StatusOr<std::string> Fingerprint() const override;

 private:
  const uint64_t seed_;
  std::map<std::string, TensorInfo, std::less<>> tensors_;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_DUMMY_SOURCE_H_
