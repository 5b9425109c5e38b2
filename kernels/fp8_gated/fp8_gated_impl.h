// The rows of Fp8Gated's device table.
#ifndef KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
#define KERNELS_FP8_GATED_FP8_GATED_IMPL_H_

#include <cstdint>

#include "kernels/fp8_gated/fp8_gated.h"

namespace millrace {

// From which on the compiler can widen E4M3.
inline constexpr int32_t kFp8GatedCapability = 89;

absl::Status Fp8GatedCuda(const OpContext& ctx, const Fp8GatedArgs& args);

// What computes it on the GPU: kRing on sm_90, elsewhere kSkinny, which sm_90 can run too.
enum class Fp8GatedKernel : uint8_t { kRing, kSkinny };
// Fp8GatedCuda by a kernel that the device runs, chosen or not.
absl::Status Fp8GatedCudaBy(Fp8GatedKernel kernel, const OpContext& ctx, const Fp8GatedArgs& args);

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
