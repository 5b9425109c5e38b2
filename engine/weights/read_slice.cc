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
bool ToF32(const std::byte* src, int64_t count, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, src + i * int64_t{sizeof(bits)}, sizeof(bits));
    const float value = Element::Value(bits);
    std::memcpy(dst + i * int64_t{sizeof(value)}, &value, sizeof(value));
  }
  return true;
}

template <typename Element>
bool ToBF16(const std::byte* src, int64_t count, std::byte* dst) {
  for (int64_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, src + i * int64_t{sizeof(bits)}, sizeof(bits));
    const BFloat16 value = ToBFloat16(Element::Value(bits));
    std::memcpy(dst + i * int64_t{sizeof(value)}, &value, sizeof(value));
  }
  return true;
}

template <int64_t kBytes>
bool Copy(const std::byte* src, int64_t count, std::byte* dst) {
  std::memcpy(dst, src, static_cast<size_t>(count * kBytes));
  return true;
}

// False at an integer that does not fit.
bool NarrowI64(const std::byte* src, int64_t count, std::byte* dst) {
  bool fits = true;
  for (int64_t i = 0; i < count; ++i) {
    int64_t wide = 0;
    std::memcpy(&wide, src + i * int64_t{sizeof(wide)}, sizeof(wide));
    const auto narrow = static_cast<int32_t>(wide);
    fits = fits && narrow == wide;
    std::memcpy(dst + i * int64_t{sizeof(narrow)}, &narrow, sizeof(narrow));
  }
  return fits;
}

// Tells whether every element could be converted.
using ConvertFn = bool (*)(const std::byte* src, int64_t count, std::byte* dst);

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
  if (to == DType::kI32) {
    if (from == FileDType::kI32) return Copy<4>;
    if (from == FileDType::kI64) return NarrowI64;
  }
  return nullptr;
}

ConvertFn CopyOf(int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return Copy<1>;
    case 2:
      return Copy<2>;
    case 4:
      return Copy<4>;
    case 8:
      return Copy<8>;
    default:
      return nullptr;
  }
}

// Converts a checked box, whose elements become `want_bytes` each.
absl::Status ConvertSlice(const TensorInfo& tensor, absl::Span<const Range> ranges,
                          ConvertFn convert, int64_t want_bytes, std::byte* out) {
  if (SliceElements(ranges) == 0) return absl::OkStatus();
  const int64_t element_bytes = FileDTypeBits(tensor.dtype) / 8;
  MR_CHECK_EQ(static_cast<int64_t>(tensor.data.size()), tensor.num_elements() * element_bytes);

  // A vector is a matrix of one row, a scalar one of one element.
  const Range rows = ranges.size() == 2 ? ranges[0] : Range{0, 1};
  const Range cols = ranges.empty() ? Range{0, 1} : ranges.back();
  const int64_t width = ranges.empty() ? 1 : tensor.shape.back();
  const auto source_offset = [&](int64_t row) {
    return (row * width + cols.begin) * element_bytes;
  };
  const int64_t last = source_offset(rows.end - 1) + cols.size() * element_bytes;
  PrefetchMapped(tensor.data.subspan(source_offset(rows.begin), last - source_offset(rows.begin)));
  bool fits = true;
  if (cols.size() == width) {  // whole rows lie together
    fits = convert(tensor.data.data() + source_offset(rows.begin), rows.size() * width, out);
  } else {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      fits = convert(tensor.data.data() + source_offset(row), cols.size(), out) && fits;
      out += cols.size() * want_bytes;
    }
  }
  return fits ? absl::OkStatus() : TensorError(tensor, "holds a number that int32 cannot");
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

absl::Status CheckSlice(const TensorInfo& tensor, absl::Span<const Range> ranges) {
  if (tensor.shape.size() > 2 || ranges.size() != tensor.shape.size()) {
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
  return absl::OkStatus();
}

absl::Status ReadSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, DType want,
                       void* dst) {
  RETURN_IF_ERROR(CheckSlice(tensor, ranges));
  const ConvertFn convert = FindConversion(tensor.dtype, want);
  if (convert == nullptr) {
    return TensorError(tensor,
                       absl::StrCat("is stored as ", std::string(FileDTypeName(tensor.dtype)),
                                    ", which cannot be read as ", std::string(DTypeName(want))));
  }
  return ConvertSlice(tensor, ranges, convert, DTypeBytes(want), static_cast<std::byte*>(dst));
}

absl::Status ReadRawSlice(const TensorInfo& tensor, absl::Span<const Range> ranges, void* dst) {
  RETURN_IF_ERROR(CheckSlice(tensor, ranges));
  const int64_t bits = FileDTypeBits(tensor.dtype);
  const ConvertFn copy = bits % 8 == 0 ? CopyOf(bits / 8) : nullptr;
  if (copy == nullptr) {
    return TensorError(tensor,
                       absl::StrCat("is stored as ", std::string(FileDTypeName(tensor.dtype)),
                                    ", which has no whole bytes"));
  }
  return ConvertSlice(tensor, ranges, copy, bits / 8, static_cast<std::byte*>(dst));
}

}  // namespace millrace
