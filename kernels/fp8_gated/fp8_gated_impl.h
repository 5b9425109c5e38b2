// The rows of Fp8Gated's device table.
#ifndef KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
#define KERNELS_FP8_GATED_FP8_GATED_IMPL_H_

#include <cstdint>

#include "kernels/fp8_gated/fp8_gated.h"
#include "kernels/fp8_gemm/fp8_gemm.h"

namespace millrace {

// From which on the compiler can widen E4M3.
inline constexpr int32_t kFp8GatedCapability = 89;

// By Fp8Gemm and Swiglu in f32.
absl::Status Fp8GatedCpu(const OpContext& ctx, const Fp8GatedArgs& args);
absl::Status Fp8GatedCuda(const OpContext& ctx, const Fp8GatedArgs& args);

// What computes it on the GPU: kRing on sm_90, elsewhere kSkinny, which sm_90 can run too.
enum class Fp8GatedKernel : uint8_t { kRing, kSkinny };
// Fp8GatedCuda by a kernel that the device runs, chosen or not.
absl::Status Fp8GatedCudaBy(Fp8GatedKernel kernel, const OpContext& ctx, const Fp8GatedArgs& args);

// The operands of the product inside.
inline Fp8GemmArgs ProductOf(const Fp8GatedArgs& args, const TensorView& y) {
  return {.x = args.x,
          .x_scale = args.x_scale,
          .weight = args.weight,
          .weight_scale = args.weight_scale,
          .y = y,
          // Neither row has a use for them.
          .flags = TensorView::Of(args.y.data, DType::kI32, {0}, args.y.device),
          .scales = args.scales};
}

}  // namespace millrace

#endif  // KERNELS_FP8_GATED_FP8_GATED_IMPL_H_
