// Element types of tensors, and bf16 conversions on the host.
#ifndef KERNELS_CORE_DTYPE_H_
#define KERNELS_CORE_DTYPE_H_

#include <bit>
#include <cstdint>
#include <string_view>

namespace millrace {

enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kI64, kU8 };

constexpr int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "uint8";
  }
  return "?";
}

// A bf16 value as stored: the upper half of an IEEE float.
struct BFloat16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN (made quiet), overflow becomes infinity.
constexpr BFloat16 ToBFloat16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace millrace

#endif  // KERNELS_CORE_DTYPE_H_
