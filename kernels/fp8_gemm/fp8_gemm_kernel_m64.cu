#include "kernels/fp8_gemm/fp8_gemm_kernel_m64_launch.cuh"

namespace millrace {

cudaError_t LaunchFp8GemmM64(const Fp8GemmKernelArgs& args, const Fp8GemmGroups& groups,
                             cudaStream_t stream) {
  using fp8_m64::LaunchWith;
  using fp8_m64::Traits;
  if (args.tokens > 64 || !args.blocks) return cudaErrorInvalidValue;
  return groups.wide ? LaunchWith<Traits<128>>(args, groups, stream)
                     : LaunchWith<Traits<64>>(args, groups, stream);
}

}  // namespace millrace
