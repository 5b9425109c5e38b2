// The rows of QuantizeFp8Gemm's device table.
#ifndef KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_IMPL_H_
#define KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_IMPL_H_

#include <cstdint>

#include "kernels/fp8_gemm/fp8_gemm.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm.h"

namespace millrace {

inline constexpr int32_t kQuantizeFp8GemmCapability = 90;
// Of a tile; a multiprocessor has one.
inline constexpr int64_t kQuantizeFp8GemmTile = 32;

// The product inside; x stands there as if it were codes already.
Fp8GemmArgs ProductOf(const QuantizeFp8GemmArgs& args);

absl::Status QuantizeFp8GemmCuda(const OpContext& ctx, const QuantizeFp8GemmArgs& args);

}  // namespace millrace

#endif  // KERNELS_QUANTIZE_FP8_GEMM_QUANTIZE_FP8_GEMM_IMPL_H_
