#include "tests/parity/dequantised_checkpoint.h"

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "engine/weights/checkpoint_source.h"
#include "engine/weights/stored_layout.h"
#include "kernels/core/check.h"
#include "kernels/lowp/block_formats.h"
#include "tests/parity/checkpoint_writer.h"

namespace millrace {
namespace {

absl::Span<const uint8_t> BytesOf(const TensorInfo& tensor) {
  return {reinterpret_cast<const uint8_t*>(tensor.data.data()), tensor.data.size()};
}

// The data of a file need not be aligned.
std::vector<float> FloatsOf(const TensorInfo& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

std::vector<float> Dequantised(const StoredLayout& layout, MatrixShape shape) {
  std::vector<float> w(static_cast<size_t>(shape.rows * shape.cols));
  const absl::Span<const uint8_t> codes = BytesOf(layout.values), scales = BytesOf(layout.scales);
  switch (layout.format) {
    case StoredFormat::kFp8:
      if (layout.scales.dtype == FileDType::kF32) {
        DequantizeFp8(shape, codes, FloatsOf(layout.scales), absl::MakeSpan(w));
      } else {
        DequantizeFp8(shape, codes, scales, absl::MakeSpan(w));
      }
      break;
    case StoredFormat::kMxFp4:
      DequantizeMxfp4(shape, codes, scales, absl::MakeSpan(w));
      break;
    case StoredFormat::kNvFp4:
      DequantizeNvfp4(shape, codes, scales,
                      {.stored = FloatsOf(layout.factor)[0], .reciprocal = layout.divide_by_factor},
                      absl::MakeSpan(w));
      break;
    case StoredFormat::kF32:
    case StoredFormat::kBF16:
      MR_CHECK(false);
  }
  return w;
}

WrittenTensor Copied(const CheckpointSource& source, const TensorInfo& tensor) {
  WrittenTensor copy = {.shape = tensor.shape};
  std::vector<Range> ranges;
  for (const int64_t extent : tensor.shape) ranges.push_back({0, extent});
  const auto size = static_cast<size_t>(tensor.num_elements());
  if (tensor.dtype == FileDType::kI64) {
    std::vector<int32_t> values(size);
    MR_CHECK(source.Read(tensor.name, ranges, DType::kI32, values.data()).ok());
    copy.type = WrittenTensor::Type::kI64;
    copy.values.assign(values.begin(), values.end());
    return copy;
  }
  copy.type =
      tensor.dtype == FileDType::kF32 ? WrittenTensor::Type::kF32 : WrittenTensor::Type::kBF16;
  copy.values.resize(size);
  MR_CHECK(source.Read(tensor.name, ranges, DType::kF32, copy.values.data()).ok());
  return copy;
}

// Of "a.b.weight" or "a.b.weight_packed" that holds a quantised matrix: "a.b". Else empty.
std::string QuantisedPrefix(const TensorInfo& tensor) {
  const bool codes = tensor.dtype == FileDType::kF8E4M3 || tensor.dtype == FileDType::kI8 ||
                     tensor.dtype == FileDType::kU8;
  const bool named =
      absl::EndsWith(tensor.name, ".weight") || absl::EndsWith(tensor.name, ".weight_packed");
  return codes && named ? tensor.name.substr(0, tensor.name.rfind('.')) : "";
}

}  // namespace

StoredBytes WriteDequantised(const std::string& from, const std::string& config,
                             const std::string& to) {
  const std::unique_ptr<CheckpointSource> source = *CheckpointSource::Open(from);
  StoredBytes bytes;
  std::map<std::string, WrittenTensor> tensors;
  std::set<std::string> done;
  for (const auto& [name, tensor] : source->checkpoint().tensors()) {
    const std::string prefix = QuantisedPrefix(*tensor);
    if (prefix.empty()) continue;
    const int64_t packed = tensor->dtype == FileDType::kF8E4M3 ? 1 : 2;
    const MatrixShape shape = {tensor->shape[0], tensor->shape[1] * packed};
    const StoredLayout layout = *FindStoredLayout(*source, prefix, shape.rows, shape.cols);
    tensors[prefix + ".weight"] = {.shape = {shape.rows, shape.cols},
                                   .values = Dequantised(layout, shape),
                                   .type = WrittenTensor::Type::kF32};
    for (const TensorInfo* part : {&layout.values, &layout.scales, &layout.factor}) {
      bytes.matrices += static_cast<int64_t>(part->data.size());
      done.insert(part->name);
    }
    for (const TensorInfo& part : layout.unused) done.insert(part.name);
  }
  for (const auto& [name, tensor] : source->checkpoint().tensors()) {
    if (done.count(name) > 0) continue;
    bytes.plain += static_cast<int64_t>(tensor->data.size());
    tensors[name] = Copied(*source, *tensor);
  }
  std::ostringstream text;
  text << std::ifstream(config + "/config.json").rdbuf();
  WriteCheckpoint(to, text.str(), tensors);
  return bytes;
}

}  // namespace millrace
