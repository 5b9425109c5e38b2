// kernels/fp8_gemm/fp8_gemm_kernel_ring.cuh on a row of bf16. All of a block's weights or half of
// them are on the chip when the row comes, so that every block makes the codes anew in less time
// than a kernel for them takes to begin and end.
#include "kernels/fp8_gemm/fp8_gemm_kernel_ring_product.cuh"
#include "kernels/quantize_fp8_gemm/quantize_fp8_gemm_kernel.h"

namespace millrace {
namespace {

// As LaunchFp8GemmRing() has them for such weights, of few inputs and of many.
using Few = fp8_ring::Shape<2, 1, 8, 4, 4, 1, 2, 2>;
using Many = fp8_ring::Shape<2, 1, 16, 3, 4, 1, 0, 4>;
static_assert(Many::kMostInputs == kQuantizeFp8GemmKernelInputs);

}  // namespace

cudaError_t LaunchQuantizeFp8Gemm(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                                  cudaStream_t stream) {
  return args.inputs <= Few::kMostInputs
             ? fp8_ring::LaunchProduct<Few, false>(args, multiprocessors, stream)
             : fp8_ring::LaunchProduct<Many, false>(args, multiprocessors, stream);
}

}  // namespace millrace
