#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/rms_norm/rms_norm_impl.h"
#include "kernels/rms_norm/rms_norm_kernel.h"

namespace millrace {
namespace {

// Whether every row starts on 16 bytes.
bool RowsAligned(const TensorView& t) {
  const bool stride = t.dim(0) <= 1 || t.stride(0) % 8 == 0;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && stride;
}

RmsNormVariant ChooseVariant(const RmsNormArgs& args) {
  if (args.x.dtype == DType::kF32) {
    return args.weight.dtype == DType::kF32 ? RmsNormVariant::kF32 : RmsNormVariant::kF32Bf16;
  }
  if (args.weight.dtype == DType::kF32) return RmsNormVariant::kBf16F32;
  const bool aligned = args.x.dim(1) % 8 == 0 && RowsAligned(args.x) && RowsAligned(args.y) &&
                       reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0 &&
                       (!args.residual || RowsAligned(*args.residual));
  return aligned ? RmsNormVariant::kBf16Vector : RmsNormVariant::kBf16;
}

}  // namespace

absl::Status RmsNormCuda(const OpContext& ctx, const RmsNormArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax) {
    return absl::UnimplementedError("RmsNorm: more than 2^31 - 1 tokens or elements on cuda");
  }
  const RmsNormKernelArgs kernel_args = {
      .x = args.x.data,
      .residual = args.residual ? args.residual->data : nullptr,
      .weight = args.weight.data,
      .y = args.y.data,
      .x_stride = args.x.stride(0),
      .residual_stride = args.residual ? args.residual->stride(0) : 0,
      .y_stride = args.y.stride(0),
      .tokens = static_cast<int32_t>(args.x.dim(0)),
      .size = static_cast<int32_t>(args.x.dim(1)),
      .eps = args.eps};
  return CudaStatus(LaunchRmsNorm(ChooseVariant(args), kernel_args, ToCuda(ctx.stream)), "RmsNorm");
}

}  // namespace millrace
