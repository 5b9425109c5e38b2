#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/rms_norm/norm_args.h"
#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {
namespace {

RmsNormVariant ChooseVariant(const RmsNormArgs& args) {
  if (args.x.dtype == DType::kF32) {
    return args.weight.dtype == DType::kF32 ? RmsNormVariant::kF32 : RmsNormVariant::kF32Bf16;
  }
  if (args.weight.dtype == DType::kF32) return RmsNormVariant::kBf16F32;
  return NormTakesVectors(args) ? RmsNormVariant::kBf16Vector : RmsNormVariant::kBf16;
}

}  // namespace

absl::Status RmsNormCuda(const OpContext& ctx, const RmsNormArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax) {
    return absl::UnimplementedError("RmsNorm: more than 2^31 - 1 tokens or elements on cuda");
  }
  return CudaStatus(LaunchRmsNorm(ChooseVariant(args), NormKernelArgs(args), ToCuda(ctx.stream)),
                    "RmsNorm");
}

}  // namespace millrace
