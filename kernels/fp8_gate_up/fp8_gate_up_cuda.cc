#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/fp8_gate_up/fp8_gate_up_impl.h"
#include "kernels/fp8_gate_up/fp8_gate_up_kernel.h"
#include "kernels/fp8_gemm/product_args.h"
#include "kernels/quantize/code_views.h"

namespace millrace {
namespace {

bool TakesTiles(const Fp8GateUpArgs& args, int32_t compute_capability) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  const int64_t tokens = args.x.dim(0), inputs = args.x.dim(1), rows = args.weight.dim(0);
  return compute_capability == kFp8GateUpCapability && tokens > kFp8GateUpFewTokens &&
         tokens <= kMax && inputs > 0 && inputs <= kMax && rows <= kMax &&
         RowsStartOn(args.x, 16) && RowsStartOn(args.weight, 16) && RowsStartOn(args.codes, 16) &&
         (args.scales != Fp8GemmScales::kBlocks || RowsStartOn(args.x_scale, 16));
}

}  // namespace

absl::Status Fp8GateUpCuda(const OpContext& ctx, const Fp8GateUpArgs& args) {
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  if (!TakesTiles(args, device.compute_capability())) return Fp8GateUpByParts(ctx, args);
  Fp8GemmKernelArgs kernel_args = Fp8GemmProductArgs(ProductOf(args, args.codes));
  kernel_args.gated = CodeArgsOf(CodesOf(args));
  return CudaStatus(LaunchFp8GateUp(kernel_args, device.multiprocessors(), ToCuda(ctx.stream)),
                    "Fp8GateUp");
}

}  // namespace millrace
