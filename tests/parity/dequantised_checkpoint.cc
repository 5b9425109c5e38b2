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
#include "kernels/lowp/small_float.h"

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
  if (tensor.dtype == FileDType::kF8E4M3) {
    copy.type = WrittenTensor::Type::kF8E4M3;
    for (const uint8_t code : BytesOf(tensor)) copy.values.push_back(kE4M3Values[code]);
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

// Beside a matrix; those of a cache are not.
bool IsWeightScale(const std::string& name) {
  return absl::EndsWith(name, ".weight_scale") || absl::EndsWith(name, ".weight_scale_inv") ||
         absl::EndsWith(name, ".input_scale");
}

// Of the matrix `weight`: of its blocks, rows, or all.
const WrittenTensor& ScaleOf(const std::map<std::string, WrittenTensor>& stored,
                             const std::string& weight) {
  const auto blocks = stored.find(weight + "_scale_inv");
  return blocks != stored.end() ? blocks->second : stored.at(weight + "_scale");
}

WrittenTensor Widened(const WrittenTensor& codes, const WrittenTensor& scale) {
  const int64_t rows = codes.shape[0], cols = codes.shape[1];
  const bool blocks = scale.shape.size() == 2 && scale.shape[0] == (rows + 127) / 128 &&
                      scale.shape[1] == (cols + 127) / 128;
  WrittenTensor w = {.shape = codes.shape, .type = WrittenTensor::Type::kF32};
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols, col = i % cols;
    const int64_t at = blocks                     ? row / 128 * scale.shape[1] + col / 128
                       : scale.values.size() == 1 ? 0
                                                  : row;
    w.values.push_back(codes.values[static_cast<size_t>(i)] *
                       scale.values[static_cast<size_t>(at)]);
  }
  return w;
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
  WriteCheckpoint(to, ConfigOf(config), tensors);
  return bytes;
}

std::string ConfigOf(const std::string& dir) {
  std::ostringstream text;
  text << std::ifstream(dir + "/config.json").rdbuf();
  return text.str();
}

std::map<std::string, WrittenTensor> StoredTensors(const std::string& dir) {
  const std::unique_ptr<CheckpointSource> source = *CheckpointSource::Open(dir);
  std::map<std::string, WrittenTensor> tensors;
  for (const auto& [name, tensor] : source->checkpoint().tensors()) {
    tensors[name] = Copied(*source, *tensor);
  }
  return tensors;
}

std::map<std::string, WrittenTensor> DequantisedLlama(const std::string& dir) {
  const std::map<std::string, WrittenTensor> stored = StoredTensors(dir);
  std::map<std::string, WrittenTensor> tensors;
  for (const auto& [name, tensor] : stored) {
    if (tensor.type == WrittenTensor::Type::kF8E4M3) {
      tensors[name] = Widened(tensor, ScaleOf(stored, name));
    } else if (!IsWeightScale(name)) {
      tensors[name] = tensor;
    }
  }
  return tensors;
}

}  // namespace millrace
