#include "kernels/fp8_gemm/fp8_gemm_kernel_few_launch.cuh"

namespace millrace {
namespace {

template <typename T>
cudaError_t LaunchLine(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split,
                       int multiprocessors, cudaStream_t stream) {
  const int64_t units = int64_t{(args.outputs + T::kOutputs - 1) / T::kOutputs} *
                        ((args.inputs + T::kDepth - 1) / T::kDepth);
  return fp8_few::LaunchWith<T>(args, split, units < multiprocessors ? units : multiprocessors,
                                stream);
}

template <bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split, int multiprocessors,
                     cudaStream_t stream) {
  return LaunchLine<fp8_few::Traits<128, 6, kBlocks>>(args, split, multiprocessors, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmFew(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split,
                             int32_t multiprocessors, cudaStream_t stream) {
  return args.blocks ? LaunchOf<true>(args, split, multiprocessors, stream)
                     : LaunchOf<false>(args, split, multiprocessors, stream);
}

}  // namespace millrace
