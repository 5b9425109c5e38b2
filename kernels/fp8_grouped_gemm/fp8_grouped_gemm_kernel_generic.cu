// The plain product of each group: a layer of the grid a group.
#include "kernels/fp8_gemm/fp8_gemm_kernel_generic.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_rows.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

__global__ void __launch_bounds__(32 * fp8_generic::kWarps)
    Fp8GroupedGemmGeneric(const __grid_constant__ Fp8GemmKernelArgs all,
                          const __grid_constant__ Fp8Groups groups, int64_t weight_group_stride) {
  WaitForPriorGrid();
  StartNextGrid();
  for (int group = blockIdx.z; group < groups.count; group += gridDim.z) {
    const int2 rows = RowsOf(groups, group, all.tokens);
    const int64_t y_bytes = all.y_bf16 ? 2 : 4;
    Fp8GemmKernelArgs args = all;
    args.tokens = rows.y - rows.x;
    args.x += rows.x * all.x_stride;
    args.x_scale += rows.x;
    args.y = static_cast<uint8_t*>(all.y) + rows.x * all.y_stride * y_bytes;
    args.weight += group * weight_group_stride;
    args.weight_scale += group * all.weight_scale_group_stride;
    fp8_generic::Multiply(args);
  }
}

}  // namespace

cudaError_t LaunchFp8GroupedGemmGeneric(const Fp8GroupedLaunch& launch, int64_t weight_group_stride,
                                        cudaStream_t stream) {
  constexpr int kMaxGridZ = 65535;
  LaunchShape shape = fp8_generic::ShapeOf(launch.args, launch.expected_rows);
  shape.grid.z =
      static_cast<unsigned>(launch.groups.count < kMaxGridZ ? launch.groups.count : kMaxGridZ);
  return Launch(Fp8GroupedGemmGeneric, shape, stream, launch.args, launch.groups,
                weight_group_stride);
}

}  // namespace millrace
