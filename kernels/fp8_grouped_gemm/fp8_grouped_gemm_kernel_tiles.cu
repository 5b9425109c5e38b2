#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_work.cuh"

namespace millrace {

cudaError_t LaunchFp8GroupedGemmTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  using T = fp8_tiles::Traits<2, 128, true, fp8_grouped::TilesWork>;
  const Fp8GemmKernelArgs& args = launch.args;
  // The most tiles that there can be.
  const int64_t rows = int64_t{args.tokens} / T::kRows + args.groups;
  const int64_t tiles = rows * ((args.outputs + T::kCols - 1) / T::kCols);
  return fp8_tiles::LaunchWith<T>(args, launch.groups, {tiles, launch.multiprocessors}, stream);
}

}  // namespace millrace
