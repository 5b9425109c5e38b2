#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/gate_up/gate_up_impl.h"
#include "kernels/gate_up/gate_up_kernel.h"
#include "kernels/tile/skinny_shapes.h"

namespace millrace {
namespace {

// With many tiles two blocks of 8 warps an SM take turns better between the other kernels of a step
// than one of 16, though alone they are equal (README.md).
int ShapeOf(const GateUpKernelArgs& args, int32_t multiprocessors) {
  const int shape = ChooseSkinnyShape(args.tokens, args.rows, multiprocessors);
  return shape == 2 ? 0 : shape;
}

}  // namespace

absl::Status GateUpCuda(const OpContext& ctx, const GateUpArgs& args) {
  if (!RowsAligned(args.x) || !RowsAligned(args.weight)) {
    return absl::UnimplementedError("GateUp: rows of x and weight must start on 16 bytes");
  }
  if (args.weight.dim(0) > std::numeric_limits<int32_t>::max() ||
      args.weight.dim(1) > std::numeric_limits<int32_t>::max()) {
    return absl::UnimplementedError("GateUp: a dimension above 2^31 - 1");
  }
  const GateUpKernelArgs kernel_args = {.x = args.x.data,
                                        .weight = args.weight.data,
                                        .y = args.y.data,
                                        .x_stride = args.x.stride(0),
                                        .weight_stride = args.weight.stride(0),
                                        .y_stride = args.y.stride(0),
                                        .tokens = static_cast<int32_t>(args.x.dim(0)),
                                        .inputs = static_cast<int32_t>(args.x.dim(1)),
                                        .rows = static_cast<int32_t>(args.weight.dim(0))};
  const int shape = ShapeOf(kernel_args, CudaDevice::Of(ctx.device).multiprocessors());
  return CudaStatus(LaunchGateUp(shape, kernel_args, ToCuda(ctx.stream)), "GateUp");
}

}  // namespace millrace
