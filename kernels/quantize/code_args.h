// What device code that writes FP8 codes is told of them. Both compilers read it.
#ifndef KERNELS_QUANTIZE_CODE_ARGS_H_
#define KERNELS_QUANTIZE_CODE_ARGS_H_

#include <cstdint>
#include <type_traits>

namespace millrace {

enum class CodeScale : uint8_t { kF32, kPowerOfTwo, kGiven };  // as QuantizeScale

// As QuantizeArgs. Strides in elements.
struct CodeArgs {
  uint8_t* codes = nullptr;
  float* scale = nullptr;
  int64_t codes_stride = 0;
  int64_t scale_stride = 0;  // of groups: from a group to the next
  int32_t size = 0;          // codes of a row
  CodeScale rounding = CodeScale::kF32;
  bool e5m2 = false;
};
static_assert(std::is_trivially_copyable_v<CodeArgs>);

// What a block can quantise with one row in its registers.
enum class RowUnit : uint8_t { kGroup, kToken, kGiven };

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_CODE_ARGS_H_
