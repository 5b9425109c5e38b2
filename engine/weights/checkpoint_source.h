// Weights of a checkpoint folder.
#ifndef ENGINE_WEIGHTS_CHECKPOINT_SOURCE_H_
#define ENGINE_WEIGHTS_CHECKPOINT_SOURCE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/checkpoint.h"
#include "engine/weights/weight_source.h"

namespace millrace {

class CheckpointSource final : public WeightSource {
 public:
  // Errors as Checkpoint::Open.
  static absl::StatusOr<std::unique_ptr<CheckpointSource>> Open(const std::string& dir);
  explicit CheckpointSource(std::unique_ptr<Checkpoint> checkpoint);

  const Checkpoint& checkpoint() const { return *checkpoint_; }

  absl::StatusOr<TensorInfo> Find(std::string_view name) const override;
  absl::Status Read(std::string_view name, absl::Span<const Range> ranges, DType want,
                    void* dst) const override;
  absl::Status ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                       void* dst) const override;
  std::string Where(std::string_view name) const override { return checkpoint_->FileOf(name); }
  std::vector<std::string> Names() const override;
  absl::StatusOr<std::string> Fingerprint() const override;

 private:
  const std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_CHECKPOINT_SOURCE_H_
