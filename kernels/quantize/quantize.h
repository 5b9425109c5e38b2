// Quantisation of activations to FP8 E4M3.
#ifndef KERNELS_QUANTIZE_QUANTIZE_H_
#define KERNELS_QUANTIZE_QUANTIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/core/op_context.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Elements along a row that share a scale, where groups do.
inline constexpr int64_t kQuantizeGroup = 128;

enum class QuantizeUnit : uint8_t {
  kGroup,   // kQuantizeGroup elements of a token, from a multiple of as many on; the last may be
            // short
  kToken,   // a row
  kTensor,  // all
};

enum class QuantizeScale : uint8_t {
  kF32,         // amax / 448, rounded to f32
  kPowerOfTwo,  // the smallest power of two not below amax / 448
};

// T tokens of width K.
struct QuantizeArgs {
  TensorView x;      // [T, K], f32 or bf16; rows may be padded
  TensorView codes;  // [T, K] u8, overwritten with E4M3; rows may be padded
  // f32, overwritten. kGroup: [ceil(K / 128), T], the tokens contiguous, as Fp8Gemm reads it; rows
  // may be padded. kToken: [T]. kTensor: [1].
  TensorView scale;
  QuantizeUnit unit = QuantizeUnit::kGroup;
  QuantizeScale rounding = QuantizeScale::kF32;
};

// x is nearly codes * scale. Of each unit, amax is the largest magnitude; an infinity counts as the
// largest float and a NaN as nothing. Scales are at least 2^-126, so zeros have that one. A code is
// x * (1 / scale), both operations rounded to f32 and the result to E4M3, ties to even; beyond 448
// it is 448, and NaN is 0x7f. The same bits on every device, with any number of threads.
// InvalidArgument: shapes or dtypes. ResourceExhausted: workspace below kQuantizeWorkspaceBytes.
// Unimplemented: no kernel for the device.
absl::Status Quantize(const OpContext& ctx, const QuantizeArgs& args);

// Workspace that any call needs.
inline constexpr int64_t kQuantizeWorkspaceBytes = 4096;

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_QUANTIZE_H_
