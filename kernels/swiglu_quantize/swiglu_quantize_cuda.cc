#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/quantize/code_views.h"
#include "kernels/swiglu/gated_args.h"
#include "kernels/swiglu_quantize/swiglu_quantize_impl.h"
#include "kernels/swiglu_quantize/swiglu_quantize_kernel.h"

namespace millrace {

absl::Status SwigluQuantizeCuda(const OpContext& ctx, const SwigluQuantizeArgs& args) {
  const int64_t tokens = args.codes.dim(0), size = args.codes.dim(1);
  const RowUnit unit = RowUnitOf(args.unit);
  // Stands for y where only its shape and alignment are asked for.
  const TensorView like_y = args.x.Cols(0, size);
  const SwigluArgs gated = SwigluArgsOf(args, like_y);
  const bool fits = tokens <= std::numeric_limits<int32_t>::max() / size &&
                    (unit != RowUnit::kToken || size <= kSwigluQuantizeKept);
  if (!fits || !SwigluTakesVectors(gated) || !CodesTakeVectors(args.codes)) {
    return SwigluThenQuantize(ctx, args);
  }
  const SwigluQuantizeKernelArgs kernel_args = {.gated = GatedKernelArgs(gated),
                                                .out = CodeArgsOf(QuantizeArgsOf(args, like_y))};
  return CudaStatus(LaunchSwigluQuantize(unit, kernel_args, ToCuda(ctx.stream)), "SwigluQuantize");
}

}  // namespace millrace
