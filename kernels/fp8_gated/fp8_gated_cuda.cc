#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/fp8_gated/fp8_gated_impl.h"
#include "kernels/fp8_gated/fp8_gated_kernel.h"
#include "kernels/fp8_gemm/product_args.h"

namespace millrace {

absl::Status Fp8GatedCuda(const OpContext& ctx, const Fp8GatedArgs& args) {
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  if (device.compute_capability() < kFp8GatedCapability) {
    return absl::UnimplementedError("Fp8Gated: a device below sm_89");
  }
  if (!RowsAligned(args.x) || !RowsAligned(args.weight)) {
    return absl::UnimplementedError("Fp8Gated: rows of x and weight must start on 16 bytes");
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.weight.dim(0) > kMax || args.weight.dim(1) > kMax) {
    return absl::UnimplementedError("Fp8Gated: a dimension above 2^30");
  }
  const bool ring = device.compute_capability() == 90;
  return Fp8GatedCudaBy(ring ? Fp8GatedKernel::kRing : Fp8GatedKernel::kSkinny, ctx, args);
}

absl::Status Fp8GatedCudaBy(Fp8GatedKernel kernel, const OpContext& ctx, const Fp8GatedArgs& args) {
  const Fp8GemmKernelArgs kernel_args = Fp8GemmProductArgs(ProductOf(args, args.y));
  const cudaStream_t stream = ToCuda(ctx.stream);
  const int32_t multiprocessors = CudaDevice::Of(ctx.device).multiprocessors();
  const cudaError_t error = kernel == Fp8GatedKernel::kRing
                                ? LaunchFp8GatedRing(kernel_args, multiprocessors, stream)
                                : LaunchFp8Gated(kernel_args, stream);
  return CudaStatus(error, "Fp8Gated");
}

}  // namespace millrace
