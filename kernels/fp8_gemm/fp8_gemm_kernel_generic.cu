#include "kernels/fp8_gemm/fp8_gemm_kernel_generic.cuh"
#include "kernels/ptx/pdl.cuh"

namespace millrace {
namespace {

__global__ void __launch_bounds__(32 * fp8_generic::kWarps)
    Fp8GemmGeneric(const __grid_constant__ Fp8GemmKernelArgs args) {
  WaitForPriorGrid();
  StartNextGrid();
  fp8_generic::Multiply(args);
}

}  // namespace

cudaError_t LaunchFp8GemmGeneric(const Fp8GemmKernelArgs& args, cudaStream_t stream) {
  return Launch(Fp8GemmGeneric, fp8_generic::ShapeOf(args, args.tokens), stream, args);
}

}  // namespace millrace
