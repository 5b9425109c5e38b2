#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"

namespace millrace {
namespace {

template <int kWaves, int kCols, bool kBlocks>
cudaError_t LaunchTiles(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  using fp8_tiles::Dense;
  using fp8_tiles::Traits;
  using Plain = Traits<kWaves, kCols, kBlocks, Dense, false, true>;
  using Any = Traits<kWaves, kCols, kBlocks>;
  const int tiles = fp8_tiles::Order::Of<Any>(args.tokens, args.outputs).tiles();
  const fp8_tiles::TileGrid grid = {tiles, multiprocessors};
  if (fp8_tiles::IsPlainY(args)) return fp8_tiles::LaunchWith<Plain>(args, {}, grid, stream);
  return fp8_tiles::LaunchWith<Any>(args, {}, grid, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmTiles(const Fp8GemmKernelArgs& args, const Fp8GemmTileShape& shape,
                               cudaStream_t stream) {
  if (!args.blocks) return LaunchTiles<2, 128, false>(args, shape.multiprocessors, stream);
  if (shape.narrow) return LaunchTiles<1, 192, true>(args, shape.multiprocessors, stream);
  return LaunchTiles<2, 128, true>(args, shape.multiprocessors, stream);
}

}  // namespace millrace
