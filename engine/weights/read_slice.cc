#include "engine/weights/read_slice.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/weights/mapped_file.h"
#include "engine/weights/safetensors_header.h"
#include "kernels/core/check.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

absl::Status TensorError(const TensorInfo& tensor, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", QuotedTensor(tensor.name), ": ", reason));
}

// Stored element types: bits as they lie in the file, and their value.
struct F32Element {
  using Bits = uint32_t;
  static float Value(Bits bits) { return std::bit_cast<float>(bits); }
};
struct BF16Element {
  using Bits = uint16_t;
  static float Value(Bits bits) { return ToFloat(BFloat16{bits}); }
};
struct F16Element {
  using Bits = uint16_t;
  static float Value(Bits bits) { return HalfToFloat(bits); }
};

// Data in files need not be aligned: elements go through memcpy.
template <typename Element>
void ToF32(const std::byte* src, int64_t count, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, src + i * int64_t{sizeof(bits)}, sizeof(bits));
    const float value = Element::Value(bits);
    std::memcpy(dst + i * int64_t{sizeof(value)}, &value, sizeof(value));
  }
}

template <typename Element>
void ToBF16(const std::byte* src, int64_t count, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, src + i * int64_t{sizeof(bits)}, sizeof(bits));
    const BFloat16 value = ToBFloat16(Element::Value(bits));
    std::memcpy(dst + i * int64_t{sizeof(value)}, &value, sizeof(value));
  }
}

template <int64_t kBytes>
void Copy(const std::byte* src, int64_t count, std::byte* dst) {
  std::memcpy(dst, src, static_cast<size_t>(count * kBytes));
}

using ConvertFn = void (*)(const std::byte* src, int64_t count, std::byte* dst);

// Null: no such conversion.
ConvertFn FindConversion(FileDType from, DType to) {
  if (to == DType::kF32) {
    if (from == FileDType::kF32) return Copy<4>;
    if (from == FileDType::kBF16) return ToF32<BF16Element>;
    if (from == FileDType::kF16) return ToF32<F16Element>;
  }
  if (to == DType::kBF16) {
    if (from == FileDType::kF32) return ToBF16<F32Element>;
    if (from == FileDType::kBF16) return Copy<2>;
    if (from == FileDType::kF16) return ToBF16<F16Element>;
  }
  return nullptr;
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) {  // infinity and NaN: the exponent of ones widens
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  }
  // Shifted into place the exponent lacks 127 - 15; scaling by 2^112 adds it, also to subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

int64_t SliceElements(absl::Span<const Range> ranges) {
  int64_t count = 1;
  for (const Range& range : ranges) count *= range.size();
  return count;
}

absl::Status CheckSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want) {
  if (tensor.shape.empty() || tensor.shape.size() > 2 || ranges.size() != tensor.shape.size()) {
    return TensorError(tensor, absl::StrCat("cannot take ", ranges.size(), " ranges of shape ",
                                            ShapeString(tensor.shape)));
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    if (range.begin < 0 || range.begin > range.end || range.end > tensor.shape[i]) {
      return TensorError(tensor,
                         absl::StrCat("range [", range.begin, ", ", range.end, ") of dimension ", i,
                                      " is outside shape ", ShapeString(tensor.shape)));
    }
  }
  if (want != DType::kF32 && want != DType::kBF16) {
    return TensorError(tensor, absl::StrCat("cannot be read as ", std::string(DTypeName(want))));
  }
  return absl::OkStatus();
}

absl::Status ReadSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want,
                       void* dst) {
  RETURN_IF_ERROR(CheckSlice(tensor, ranges, want));
  const ConvertFn convert = FindConversion(tensor.dtype, want);
  if (convert == nullptr) {
    return TensorError(tensor,
                       absl::StrCat("is stored as ", std::string(FileDTypeName(tensor.dtype)),
                                    ", which cannot be read as ", std::string(DTypeName(want))));
  }
  if (SliceElements(ranges) == 0) return absl::OkStatus();
  const int64_t element_bytes = FileDTypeBits(tensor.dtype) / 8;
  MR_CHECK_EQ(static_cast<int64_t>(tensor.data.size()), tensor.num_elements() * element_bytes);

  // A vector is a matrix of one row.
  const bool matrix = ranges.size() == 2;
  const Range rows = matrix ? ranges[0] : Range{0, 1};
  const Range cols = ranges.back();
  const int64_t width = tensor.shape.back();
  auto* out = static_cast<std::byte*>(dst);
  const auto source_offset = [&](int64_t row) {
    return (row * width + cols.begin) * element_bytes;
  };
  const int64_t last = source_offset(rows.end - 1) + cols.size() * element_bytes;
  PrefetchMapped(tensor.data.subspan(source_offset(rows.begin), last - source_offset(rows.begin)));
  if (cols.size() == width) {  // whole rows lie together
    convert(tensor.data.data() + source_offset(rows.begin), rows.size() * width, out);
    return absl::OkStatus();
  }
  const int64_t row_bytes = cols.size() * DTypeBytes(want);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    convert(tensor.data.data() + source_offset(row), cols.size(), out);
    out += row_bytes;
  }
  return absl::OkStatus();
}

}  // namespace millrace
