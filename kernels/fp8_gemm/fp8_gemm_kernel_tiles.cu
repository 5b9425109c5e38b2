#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"

namespace millrace {

cudaError_t LaunchFp8GemmTiles(const Fp8GemmKernelArgs& args, const Fp8GemmTileShape& shape,
                               cudaStream_t stream) {
  using fp8_tiles::LaunchWith;
  using Wide = fp8_tiles::Traits<2, 128, true>;
  using Narrow = fp8_tiles::Traits<1, 192, true>;
  using OfVectors = fp8_tiles::Traits<2, 128, false>;
  if (!args.blocks) return LaunchWith<OfVectors>(args, shape.multiprocessors, stream);
  if (shape.narrow) return LaunchWith<Narrow>(args, shape.multiprocessors, stream);
  return LaunchWith<Wide>(args, shape.multiprocessors, stream);
}

}  // namespace millrace
