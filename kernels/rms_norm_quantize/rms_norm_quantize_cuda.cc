#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/quantize/code_views.h"
#include "kernels/rms_norm/norm_args.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize_impl.h"
#include "kernels/rms_norm_quantize/rms_norm_quantize_kernel.h"

namespace millrace {

absl::Status RmsNormQuantizeCuda(const OpContext& ctx, const RmsNormQuantizeArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const RmsNormArgs norm = NormArgsOf(args, args.y ? *args.y : args.x);
  if (args.x.dim(0) > kMax || args.x.dim(1) > kRmsNormQuantizeKept || !NormTakesVectors(norm) ||
      !CodesTakeVectors(args.codes)) {
    return RmsNormThenQuantize(ctx, args);
  }
  RmsNormQuantizeKernelArgs kernel_args = {.norm = NormKernelArgs(norm),
                                           .out = CodeArgsOf(QuantizeArgsOf(args, args.x))};
  if (!args.y) kernel_args.norm.y = nullptr;
  return CudaStatus(LaunchRmsNormQuantize(RowUnitOf(args.unit), kernel_args, ToCuda(ctx.stream)),
                    "RmsNormQuantize");
}

}  // namespace millrace
