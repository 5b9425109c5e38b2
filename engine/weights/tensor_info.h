// One tensor of a checkpoint: name, stored type, shape and, for files, its bytes.
#ifndef ENGINE_WEIGHTS_TENSOR_INFO_H_
#define ENGINE_WEIGHTS_TENSOR_INFO_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/core/dtype.h"

namespace millrace {

// Element types of the safetensors format.
enum class FileDType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF4,
};

// Bits of one element: F4 has 4.
int64_t FileDTypeBits(FileDType dtype);
// As spelt in files ("BF16").
std::string_view FileDTypeName(FileDType dtype);
std::optional<FileDType> FileDTypeFromName(std::string_view name);
// The engine's type of the same layout, where it has one.
std::optional<DType> ToDType(FileDType dtype);

struct TensorInfo {
  std::string name = {};
  FileDType dtype = FileDType::kBF16;
  std::vector<int64_t> shape = {};        // row-major
  absl::Span<const std::byte> data = {};  // borrowed from the open file; empty for made-up weights

  // Product of the shape. Never overflows for a tensor that came out of Open().
  int64_t num_elements() const;
};

// "[49152, 576]"
std::string ShapeString(absl::Span<const int64_t> shape);

}  // namespace millrace

#endif  // ENGINE_WEIGHTS_TENSOR_INFO_H_
