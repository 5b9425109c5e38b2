#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_work.cuh"

namespace millrace {

namespace {

template <bool kPlainY>
cudaError_t LaunchTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  using T = fp8_tiles::Traits<2, 128, true, fp8_grouped::TilesWork, false, kPlainY>;
  const Fp8GemmKernelArgs& args = launch.args;
  // The most tiles that there can be.
  const int64_t rows = int64_t{args.tokens} / T::kRows + args.groups;
  const int64_t tiles = rows * ((args.outputs + T::kCols - 1) / T::kCols);
  return fp8_tiles::LaunchWith<T>(args, launch.groups, {tiles, launch.multiprocessors}, stream);
}

}  // namespace

cudaError_t LaunchFp8GroupedGemmTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  if (fp8_tiles::IsPlainY(launch.args)) return LaunchTiles<true>(launch, stream);
  return LaunchTiles<false>(launch, stream);
}

}  // namespace millrace
