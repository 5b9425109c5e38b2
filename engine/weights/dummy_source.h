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
// ranks sees one and the same model. Bell-shaped with mean 0 and deviation 0.02 within +-0.07, also
// what codes and scales of a quantised matrix stand for; norm weights are 1. Rounded to the stored
// dtype first: reading as F32 or BF16 agrees. Indices are distinct within a row.
class DummySource final : public WeightSource {
 public:
  // `tensors`: distinct names and shapes of rank 0 to 2, data unused. `index_limit`: what the
  // elements of I64 tensors stay below.
  DummySource(std::vector<TensorInfo> tensors, uint64_t seed, int64_t index_limit = 1);
  // All tensors that `config`'s family has.
  DummySource(const ModelConfig& config, uint64_t seed);

  absl::StatusOr<TensorInfo> Find(std::string_view name) const override;
  absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                    void* dst) const override;
  absl::Status ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                       void* dst) const override;
  std::string Where(std::string_view) const override { return "dummy weights"; }
  std::vector<std::string> Names() const override;
  absl::StatusOr<std::string> Fingerprint() const override;

 private:
  // What a tensor's elements are.
  enum class Fill : uint8_t {
    kBell,      // floats
    kConstant,  // `constant`, or `code` where the type has one byte
    kE4M3,      // codes under a scale
    kE2M1,      // two codes a byte
    kIndex,
  };
  struct Tensor {
    TensorInfo info;
    Fill fill = Fill::kBell;
    float constant = 0;
    uint8_t code = 0;
  };
  struct Element;

  // REQUIRES: all tensors are in tensors_.
  void ChooseFill(Tensor& tensor) const;
  absl::StatusOr<const Tensor*> FindTensor(std::string_view name) const;
  uint64_t KeyOf(const Tensor& tensor) const;
  // One element, by what its tensor holds.
  float FloatAt(const Tensor& tensor, Element e) const;
  int64_t IndexAt(const Tensor& tensor, Element e) const;
  uint8_t CodeAt(const Tensor& tensor, Element e) const;

  const uint64_t seed_;
  const int64_t index_limit_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_DUMMY_SOURCE_H_
