// Quantisation of activations and weights to FP8.
#ifndef KERNELS_QUANTIZE_QUANTIZE_H_
#define KERNELS_QUANTIZE_QUANTIZE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Elements along a row of codes that share a scale, where groups do.
inline constexpr int64_t kQuantizeGroup = 128;

enum class QuantizeFormat : uint8_t { kE4M3, kE5M2 };  // as kernels/lowp has them

enum class QuantizeUnit : uint8_t {
  kGroup,    // kQuantizeGroup elements of a row of codes, from a multiple of as many on; the last
             // may be short
  kToken,    // a row of x
  kChannel,  // a column of x
  kTensor,   // all
};

enum class QuantizeScale : uint8_t {
  kF32,         // amax / the format's largest number, rounded to f32
  kPowerOfTwo,  // the smallest power of two not below that quotient
  kGiven,       // the caller's, only read; of kTensor only
};

// T tokens of width K.
struct QuantizeArgs {
  TensorView x;  // [T, K], f32 or bf16; rows may be padded
  // u8, overwritten; rows may be padded. [T, K], or where `transposed` [K, T].
  TensorView codes;
  // f32, overwritten unless kGiven. kGroup: [ceil(K / 128), T], the tokens contiguous, as Fp8Gemm
  // reads it, or where `transposed` [ceil(T / 128), K]; rows may be padded. kToken: [T]. kChannel:
  // [K]. kTensor: [1].
  TensorView scale;
  QuantizeUnit unit = QuantizeUnit::kGroup;
  QuantizeScale rounding = QuantizeScale::kF32;
  QuantizeFormat format = QuantizeFormat::kE4M3;
  // The codes of x'. The tensor cores take FP8 operands only with the dimension that is summed over
  // innermost, so a matrix that has it outermost (a weight [inputs, outputs], activations summed
  // over the tokens) must be turned on the way. A token's scale would then lie along the sum, where
  // no product can apply it: kToken is refused.
  bool transposed = false;
};

// x is nearly codes * scale. Of each unit, amax is the largest magnitude; an infinity counts as the
// largest float and a NaN as nothing. Scales are at least 2^-126, so zeros have that one. A code is
// x * (1 / scale), both operations rounded to f32 and the result to the format, ties to even;
// beyond its largest number (448, 57344) it is that, never an infinity, and NaN is 0x7f. The same
// bits on every device, with any number of threads.
// InvalidArgument: shapes, dtypes, or choices that do not go together. ResourceExhausted: workspace
// below kQuantizeWorkspaceBytes. Unimplemented: no kernel for the device.
absl::Status Quantize(const OpContext& ctx, const QuantizeArgs& args);

// Workspace that any call needs.
inline constexpr int64_t kQuantizeWorkspaceBytes = 4096;

// For ops that end in a quantisation: what Quantize() would say to `args`, in the name of `op`.
absl::Status CheckQuantize(std::string_view op, DeviceType device, const QuantizeArgs& args);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_H_
