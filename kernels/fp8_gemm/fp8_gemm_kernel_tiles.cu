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

// REQUIRES: scales of blocks, plain y.
template <int kWaves, int kCols>
cudaError_t LaunchMixed(const Fp8GemmKernelArgs& args, const Fp8GemmTileCut& cut,
                        int multiprocessors, cudaStream_t stream) {
  using fp8_tiles::MixedWork;
  using fp8_tiles::Traits;
  using Wider = Traits<kWaves, kCols, true, MixedWork, false, true>;
  using Rest = Traits<1, 128, true, MixedWork, false, true, Wider>;
  const fp8_tiles::TileGrid grid = {multiprocessors, multiprocessors};
  const fp8_tiles::Mix mix = {cut.turn, {cut.wide[0], cut.wide[1]}};
  return fp8_tiles::LaunchWith<Wider, Rest>(args, mix, grid, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmTiles(const Fp8GemmKernelArgs& args, const Fp8GemmTileCut& cut,
                               int32_t multiprocessors, cudaStream_t stream) {
  if (!args.blocks) return LaunchTiles<2, 128, false>(args, multiprocessors, stream);
  if (cut.mixed != 0 && fp8_tiles::IsPlainY(args)) {
    return cut.mixed == 256 ? LaunchMixed<2, 128>(args, cut, multiprocessors, stream)
                            : LaunchMixed<1, 192>(args, cut, multiprocessors, stream);
  }
  if (cut.narrow) return LaunchTiles<1, 192, true>(args, multiprocessors, stream);
  return LaunchTiles<2, 128, true>(args, multiprocessors, stream);
}

}  // namespace millrace
