#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/fp8_gemm/product_args.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_impl.h"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel.h"

namespace millrace {
namespace {

constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;

// Of groups that expect so many rows hardly one has none, where tokens choose by themselves.
constexpr int64_t kSurelySome = 4;

// From one group's first row to the next one's.
int64_t GroupRows(const TensorView& weight) {
  const bool rows = weight.dim(0) > 1 && weight.stride(1) > 0;
  return rows ? weight.stride(0) / weight.stride(1) : weight.dim(1);
}

// The product of the first group's weight and all rows, and where the other weights lie.
Fp8GemmKernelArgs KernelArgs(const Fp8GroupedGemmArgs& args) {
  Fp8GemmKernelArgs all = Fp8GemmProductArgs({.x = args.x,
                                              .x_scale = args.x_scale,
                                              .weight = GroupOf(args.weight, 0),
                                              .weight_scale = GroupOf(args.weight_scale, 0),
                                              .y = args.y,
                                              .flags = {}});
  all.groups = static_cast<int32_t>(args.weight.dim(0));
  all.weight_group_rows = static_cast<int32_t>(GroupRows(args.weight));
  all.weight_scale_group_stride = args.weight_scale.stride(0);
  return all;
}

Fp8Groups Groups(const Fp8GroupedGemmArgs& args) {
  const int64_t count = args.weight.dim(0);
  const bool masked = args.form == Fp8GroupedRows::kMasked;
  return {.rows = args.rows.as<int32_t>(),
          .count = static_cast<int32_t>(count),
          .places = masked ? static_cast<int32_t>(args.x.dim(0) / count) : -1,
          .all_have_rows = ExpectedRows(args) >= kSurelySome};
}

}  // namespace

absl::Status Fp8GroupedGemmCuda(const OpContext& ctx, const Fp8GroupedGemmArgs& args) {
  if (std::max({args.x.dim(0), args.x.dim(1), args.weight.dim(0) * GroupRows(args.weight)}) >
      kMax) {
    return absl::UnimplementedError("Fp8GroupedGemm: above 2^30 rows or inputs on cuda");
  }
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  const cudaStream_t stream = ToCuda(ctx.stream);
  const Fp8GroupedLaunch launch = {
      .args = KernelArgs(args),
      .groups = Groups(args),
      .expected_rows = static_cast<int32_t>(std::min(ExpectedRows(args), args.x.dim(0))),
      .multiprocessors = device.multiprocessors()};
  cudaError_t error = cudaSuccess;
  switch (ChooseFp8GroupedGemm(args, device.compute_capability())) {
    case Fp8GroupedGemmKernel::kFew:
      error = LaunchFp8GroupedGemmFew(launch, stream);
      break;
    case Fp8GroupedGemmKernel::kTiles:
      error = LaunchFp8GroupedGemmTiles(launch, stream);
      break;
    case Fp8GroupedGemmKernel::kGeneric:
      error = LaunchFp8GroupedGemmGeneric(launch, args.weight.stride(0), stream);
      break;
  }
  return CudaStatus(error, "Fp8GroupedGemm");
}

}  // namespace millrace
