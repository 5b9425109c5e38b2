#include "engine/layers/weight_loader.h"

#include <algorithm>
#include <cstring>
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
  absl::flat_hash_set<std::string> seen;
  for (const WeightPart& part : parts) {
    MR_CHECK(part.ranges.size() == part.tensor.shape.size());
    MR_CHECK(part.ranges.size() == parts[0].ranges.size());
    MR_CHECK(part.ranges.back().size() == parts[0].ranges.back().size() || part.ranges.size() == 1);
    rows += part.ranges[0].size();
    elements += Elements(part);
    if (seen.insert(part.tensor.name).second) tensors_.push_back(part.tensor);
  }
  const int64_t bytes = elements * DTypeBytes(dtype);
  bytes_ += bytes;
  if (recording()) return Weight();

  Weight weight;
  ASSIGN_OR_RETURN(weight.memory, device_->Allocate(bytes));
  void* data = weight.memory.data();
  weight.view =
      parts[0].ranges.size() == 1
          ? TensorView::Of(data, dtype, {rows}, device_->type())
          : TensorView::Of(data, dtype, {rows, parts[0].ranges[1].size()}, device_->type());
  RETURN_IF_ERROR(Fill(parts, dtype, static_cast<char*>(data)));
  RETURN_IF_ERROR(ring_->Finish());
  if (progress_) progress_(bytes_, total_);
  return weight;
}

absl::StatusOr<Weight> WeightLoader::Upload(absl::Span<const float> values) {
  if (recording()) return Weight();
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(float));
  Weight weight;
  ASSIGN_OR_RETURN(weight.memory, device_->Allocate(bytes));
  RETURN_IF_ERROR(ring_->Put(weight.memory.data(), bytes, [&](char* host) {
    std::memcpy(host, values.data(), static_cast<size_t>(bytes));
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(ring_->Finish());
  weight.view = TensorView::Of(weight.memory.data(), DType::kF32,
                               {static_cast<int64_t>(values.size())}, device_->type());
  return weight;
}

// Pieces are as many whole rows as fit, of one part or of several.
absl::Status WeightLoader::Fill(absl::Span<const WeightPart> parts, DType dtype, char* to) {
  std::vector<WeightPart> piece;
  int64_t bytes = 0;
  const auto put = [&]() -> absl::Status {
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(ring_->Put(to, bytes, [&](char* host) { return Read(piece, dtype, host); }));
    to += bytes;
    piece.clear();
    bytes = 0;
    return absl::OkStatus();
  };
  for (const WeightPart& part : parts) {
    if (Elements(part) == 0) continue;
    const int64_t row_bytes = Elements(part) / part.ranges[0].size() * DTypeBytes(dtype);
    for (Range rest = part.ranges[0]; rest.size() > 0;) {
      const int64_t room = (UploadRing::kPieceBytes - bytes) / row_bytes;
      if (room == 0) {
        if (bytes == 0) {
          return absl::UnimplementedError(absl::StrCat(part.tensor.name, ": a row of ", row_bytes,
                                                       " bytes, want at most ",
                                                       UploadRing::kPieceBytes));
        }
        RETURN_IF_ERROR(put());
        continue;
      }
      const int64_t rows = std::min(room, rest.size());
      WeightPart some = part;
      some.ranges[0] = {rest.begin, rest.begin + rows};
      piece.push_back(std::move(some));
      bytes += rows * row_bytes;
      rest.begin += rows;
    }
  }
  return put();
}

absl::Status WeightLoader::Read(absl::Span<const WeightPart> parts, DType dtype, char* host) {
  for (const WeightPart& part : parts) {
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
