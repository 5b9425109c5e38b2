#include "engine/weights/checkpoint_source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/weights/read_slice.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/status.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<CheckpointSource>> CheckpointSource::Open(const std::string& dir) {
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(dir));
  return std::make_unique<CheckpointSource>(std::move(checkpoint));
}

CheckpointSource::CheckpointSource(std::unique_ptr<Checkpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)) {}

absl::StatusOr<TensorInfo> CheckpointSource::Find(std::string_view name) const {
  const TensorInfo* tensor = checkpoint_->Find(name);
  if (tensor != nullptr) return *tensor;
  return absl::NotFoundError(
      absl::StrCat(checkpoint_->dir(), ": no tensor ", QuotedTensor(name), " in the checkpoint"));
}

absl::Status CheckpointSource::Read(std::string_view name, absl::Span<const Range> ranges,
                                    DType want, void* dst) const {
  ASSIGN_OR_RETURN(const TensorInfo tensor, Find(name));
  return ReadSlice(tensor, ranges, want, dst);
}

absl::Status CheckpointSource::ReadRaw(std::string_view name, absl::Span<const Range> ranges,
                                       void* dst) const {
  ASSIGN_OR_RETURN(const TensorInfo tensor, Find(name));
  return ReadRawSlice(tensor, ranges, dst);
}

std::vector<std::string> CheckpointSource::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint_->tensors()) names.push_back(name);
  return names;
}

absl::StatusOr<std::string> CheckpointSource::Fingerprint() const {
  return checkpoint_->Fingerprint();
}

}  // namespace millrace
