#include "kernels/fp8_gemm/fp8_gemm_kernel_m64_launch.cuh"

namespace millrace {

cudaError_t LaunchFp8GemmM64(const Fp8GemmKernelArgs& args, const Fp8GemmM64Shape& shape,
                             cudaStream_t stream) {
  using fp8_m64::LaunchWith;
  using fp8_m64::Traits;
  return shape.wide ? LaunchWith<Traits<128>>(args, shape, stream)
                    : LaunchWith<Traits<64>>(args, shape, stream);
}

}  // namespace millrace
