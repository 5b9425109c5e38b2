#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"

namespace millrace {
namespace {

template <typename T>
cudaError_t LaunchTiles(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  const int tiles = fp8_tiles::Order::Of<T>(args.tokens, args.outputs).tiles();
  return fp8_tiles::LaunchWith<T>(args, {}, {tiles, multiprocessors}, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmTiles(const Fp8GemmKernelArgs& args, const Fp8GemmTileShape& shape,
                               cudaStream_t stream) {
  using Wide = fp8_tiles::Traits<2, 128, true>;
  using Narrow = fp8_tiles::Traits<1, 192, true>;
  using OfVectors = fp8_tiles::Traits<2, 128, false>;
  if (!args.blocks) return LaunchTiles<OfVectors>(args, shape.multiprocessors, stream);
  if (shape.narrow) return LaunchTiles<Narrow>(args, shape.multiprocessors, stream);
  return LaunchTiles<Wide>(args, shape.multiprocessors, stream);
}

}  // namespace millrace
