// Up to 8 tokens on Hopper: fp8_gemm_kernel_ring.cuh has the schedule.
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring_product.cuh"

namespace millrace {
namespace {

using fp8_ring::Shape;

template <typename S>
cudaError_t LaunchWith(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  return args.blocks ? fp8_ring::LaunchProduct<S, true>(args, multiprocessors, stream)
                     : fp8_ring::LaunchProduct<S, false>(args, multiprocessors, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmRing(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                              cudaStream_t stream) {
  // One tile an SM and as much of it in its ring as fits, or two blocks that take many. 128 KiB,
  // and 128 registers with scales of vectors, for short rows, so that o_proj fits beside attention
  // and is there when that ends. There and with 48 rows a piece is widened ahead (few_tokens.md);
  // with 16 it has not been tried.
  const int rows = (args.outputs + multiprocessors - 1) / multiprocessors;
  if (rows <= 16) return LaunchWith<Shape<1, 1, 8, 8, 4, 1>>(args, multiprocessors, stream);
  if (rows <= 32 && args.inputs <= 32 * fp8_ring::kPiece) {
    return LaunchWith<Shape<2, 1, 8, 4, 4, 1, 2>>(args, multiprocessors, stream);
  }
  if (rows <= 32) return LaunchWith<Shape<2, 1, 16, 3, 4, 1>>(args, multiprocessors, stream);
  if (rows <= 48) return LaunchWith<Shape<3, 1, 8, 4, 4, 1, 2>>(args, multiprocessors, stream);
  return LaunchWith<Shape<2, 1, 8, 3, 4, 2>>(args, multiprocessors, stream);
}

}  // namespace millrace
