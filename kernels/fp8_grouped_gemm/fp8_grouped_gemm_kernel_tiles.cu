#include <type_traits>

#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_work.cuh"

namespace millrace {

namespace {

constexpr int kRestCols = 64;

template <int kRestColsOrNone>
using Wide = fp8_tiles::Traits<2, 128, true, fp8_grouped::TilesWork<kRestColsOrNone>, false,
                               (kRestColsOrNone > 0)>;

// Rest: what tiles of a last round are; plain y alone.
template <typename T, typename Rest>
cudaError_t LaunchTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  const Fp8GemmKernelArgs& args = launch.args;
  // The most tiles that there can be, narrow ones among them.
  constexpr int kParts = std::is_void_v<Rest> ? 1 : T::kCols / kRestCols;
  const int64_t rows = int64_t{args.tokens} / T::kRows + args.groups;
  const int64_t tiles = rows * ((args.outputs + T::kCols - 1) / T::kCols) * kParts;
  return fp8_tiles::LaunchWith<T, Rest>(args, launch.groups, {tiles, launch.multiprocessors},
                                        stream);
}

}  // namespace

cudaError_t LaunchFp8GroupedGemmTiles(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  using Work = fp8_grouped::TilesWork<kRestCols>;
  using Rest = fp8_tiles::Traits<1, kRestCols, true, Work, false, true, Wide<kRestCols>>;
  if (fp8_tiles::IsPlainY(launch.args)) return LaunchTiles<Wide<kRestCols>, Rest>(launch, stream);
  return LaunchTiles<Wide<0>, void>(launch, stream);
}

}  // namespace millrace
