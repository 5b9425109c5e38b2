// The rows of Fp8Gated's device table.
#ifndef KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
#define KERNELS_FP8_GATED_FP8_GATED_IMPL_H_

#include <cstdint>

#include "kernels/fp8_gated/fp8_gated.h"

namespace millrace {

// From which on the compiler can widen E4M3.
inline constexpr int32_t kFp8GatedCapability = 89;

absl::Status Fp8GatedCuda(const OpContext& ctx, const Fp8GatedArgs& args);

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
