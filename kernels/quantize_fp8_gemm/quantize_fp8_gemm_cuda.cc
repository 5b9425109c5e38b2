#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/fp8_gemm/product_args.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm_impl.h"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm_kernel.h"

namespace millrace {

static_assert(kQuantizeFp8GemmInputs == kQuantizeFp8GemmKernelInputs);

absl::Status QuantizeFp8GemmCuda(const OpContext& ctx, const QuantizeFp8GemmArgs& args) {
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  if (device.compute_capability() != kQuantizeFp8GemmCapability) {
    return absl::UnimplementedError("QuantizeFp8Gemm: a device that is not of sm_90");
  }
  const int64_t most = kQuantizeFp8GemmTile * device.multiprocessors();
  if (args.weight.dim(0) > most) {
    return absl::UnimplementedError(absl::StrCat("QuantizeFp8Gemm: ", args.weight.dim(0),
                                                 " outputs, want at most ", most,
                                                 " on this device"));
  }
  if (!RowsAligned(args.x) || !RowsAligned(args.weight)) {
    return absl::UnimplementedError("QuantizeFp8Gemm: rows of x and weight must start on 16 bytes");
  }
  return CudaStatus(LaunchQuantizeFp8Gemm(Fp8GemmProductArgs(ProductOf(args)),
                                          device.multiprocessors(), ToCuda(ctx.stream)),
                    "QuantizeFp8Gemm");
}

}  // namespace millrace
