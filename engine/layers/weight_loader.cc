#include "engine/layers/weight_loader.h"

#include <cstring>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

int64_t Elements(const WeightPart& part) {
  int64_t n = 1;
  for (const Range& range : part.ranges) n *= range.size();
  return n;
}

}  // namespace

WeightPart VectorPart(std::string name, int64_t size, Range part) {
  return {{std::move(name), {size}}, {part}};
}

WeightPart MatrixPart(std::string name, int64_t rows, int64_t cols, Range row_part,
                      Range col_part) {
  return {{std::move(name), {rows, cols}}, {row_part, col_part}};
}

absl::StatusOr<Weight> WeightLoader::Load(absl::Span<const WeightPart> parts, DType dtype) {
  MR_CHECK(!parts.empty());
  int64_t rows = 0;
  int64_t elements = 0;
  for (const WeightPart& part : parts) {
    MR_CHECK(part.ranges.size() == part.tensor.shape.size());
    MR_CHECK(part.ranges.size() == parts[0].ranges.size());
    MR_CHECK(part.ranges.back().size() == parts[0].ranges.back().size() || part.ranges.size() == 1);
    rows += part.ranges[0].size();
    elements += Elements(part);
    tensors_.push_back(part.tensor);
  }
  const int64_t bytes = elements * DTypeBytes(dtype);
  bytes_ += bytes;
  if (recording()) return Weight();

  ASSIGN_OR_RETURN(Weight weight,
                   Place(bytes, [&](char* host) { return Fill(parts, dtype, host); }));
  void* data = weight.memory.data();
  weight.view =
      parts[0].ranges.size() == 1
          ? TensorView::Of(data, dtype, {rows}, device_->type())
          : TensorView::Of(data, dtype, {rows, parts[0].ranges[1].size()}, device_->type());
  if (progress_) progress_(bytes_, total_);
  return weight;
}

absl::StatusOr<Weight> WeightLoader::Upload(absl::Span<const float> values) {
  if (recording()) return Weight();
  const size_t bytes = values.size() * sizeof(float);
  ASSIGN_OR_RETURN(Weight weight, Place(static_cast<int64_t>(bytes), [&](char* host) {
                     std::memcpy(host, values.data(), bytes);
                     return absl::OkStatus();
                   }));
  weight.view = TensorView::Of(weight.memory.data(), DType::kF32,
                               {static_cast<int64_t>(values.size())}, device_->type());
  return weight;
}

absl::StatusOr<Weight> WeightLoader::Place(int64_t bytes,
                                           const std::function<absl::Status(char*)>& fill) {
  Weight weight;
  ASSIGN_OR_RETURN(weight.memory, device_->Allocate(bytes));
  if (device_->type() == DeviceType::kCpu) {
    RETURN_IF_ERROR(fill(static_cast<char*>(weight.memory.data())));
    return weight;
  }
  const auto staging = std::make_unique<char[]>(static_cast<size_t>(bytes));
  RETURN_IF_ERROR(fill(staging.get()));
  RETURN_IF_ERROR(
      device_->Copy(weight.memory.data(), staging.get(), bytes, CopyKind::kHostToDevice, Stream()));
  RETURN_IF_ERROR(device_->Synchronize(Stream()));
  return weight;
}

absl::Status WeightLoader::Fill(absl::Span<const WeightPart> parts, DType dtype, char* host) {
  for (const WeightPart& part : parts) {
    if (Elements(part) == 0) continue;
    RETURN_IF_ERROR(source_->Read(part.tensor.name, part.ranges, dtype, host));
    host += Elements(part) * DTypeBytes(dtype);
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const WeightSource& source, absl::Span<const TensorSpec> wanted,
                          const std::function<bool(const std::string&)>& is_ignorable) {
  absl::flat_hash_set<std::string> known;
  for (const TensorSpec& tensor : wanted) {
    RETURN_IF_ERROR(source.Expect(tensor.name, tensor.shape));
    known.insert(tensor.name);
  }
  for (const std::string& name : source.Names()) {
    if (known.contains(name) || is_ignorable(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint has a tensor \"", name,
                     "\" that this model does not use; its config.json names another "
                     "architecture or leaves out an option (bias, untied lm_head, more layers)"));
  }
  return absl::OkStatus();
}

}  // namespace millrace
