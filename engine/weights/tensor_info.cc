#include "engine/weights/tensor_info.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

struct Kind {
  FileDType dtype;
  std::string_view name;
  int64_t bits;
};

constexpr std::array<Kind, 17> kKinds = {{
    {FileDType::kF64, "F64", 64},
    {FileDType::kF32, "F32", 32},
    {FileDType::kF16, "F16", 16},
    {FileDType::kBF16, "BF16", 16},
    {FileDType::kI64, "I64", 64},
    {FileDType::kI32, "I32", 32},
    {FileDType::kI16, "I16", 16},
    {FileDType::kI8, "I8", 8},
    {FileDType::kU64, "U64", 64},
    {FileDType::kU32, "U32", 32},
    {FileDType::kU16, "U16", 16},
    {FileDType::kU8, "U8", 8},
    {FileDType::kBool, "BOOL", 8},
    {FileDType::kF8E4M3, "F8_E4M3", 8},
    {FileDType::kF8E5M2, "F8_E5M2", 8},
    {FileDType::kF8E8M0, "F8_E8M0", 8},
    {FileDType::kF4, "F4", 4},
}};

// The table is indexed by the enum.
constexpr bool InOrder() {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i].dtype != static_cast<FileDType>(i)) return false;
  }
  return true;
}
static_assert(InOrder());

const Kind& KindOf(FileDType dtype) { return kKinds[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t FileDTypeBits(FileDType dtype) { return KindOf(dtype).bits; }

std::string_view FileDTypeName(FileDType dtype) { return KindOf(dtype).name; }

std::optional<FileDType> FileDTypeFromName(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.dtype;
  }
  return std::nullopt;
}

std::optional<DType> ToDType(FileDType dtype) {
  switch (dtype) {
    case FileDType::kF32:
      return DType::kF32;
    case FileDType::kBF16:
      return DType::kBF16;
    case FileDType::kF16:
      return DType::kF16;
    case FileDType::kI32:
      return DType::kI32;
    case FileDType::kI64:
      return DType::kI64;
    case FileDType::kU8:
      return DType::kU8;
    default:
      return std::nullopt;
  }
}

int64_t TensorInfo::num_elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string ShapeString(absl::Span<const int64_t> shape) {
  // A stranger's file may claim thousands of dimensions.
  constexpr size_t kMaxShown = 8;
  const std::string shown = absl::StrJoin(shape.subspan(0, kMaxShown), ", ");
  return absl::StrCat("[", shown, shape.size() > kMaxShown ? ", ...]" : "]");
}

}  // namespace millrace
