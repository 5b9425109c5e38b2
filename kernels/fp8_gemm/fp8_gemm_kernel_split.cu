#include "kernels/fp8_gemm/fp8_gemm_kernel_split_launch.cuh"

namespace millrace {
namespace {

template <int kTokens, bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmSplitShape& shape,
                     cudaStream_t stream) {
  using fp8_split::LaunchWith;
  using fp8_split::Traits;
  return shape.narrow ? LaunchWith<Traits<kTokens, 1, kBlocks>>(args, shape.splits, stream)
                      : LaunchWith<Traits<kTokens, 2, kBlocks>>(args, shape.splits, stream);
}

template <bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmSplitShape& shape,
                     cudaStream_t stream) {
  if (args.tokens <= 8) return LaunchOf<8, kBlocks>(args, shape, stream);
  if (args.tokens <= 16) return LaunchOf<16, kBlocks>(args, shape, stream);
  if (kBlocks || args.tokens <= 32) return LaunchOf<32, kBlocks>(args, shape, stream);
  return LaunchOf<64, false>(args, shape, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmSplit(const Fp8GemmKernelArgs& args, const Fp8GemmSplitShape& shape,
                               cudaStream_t stream) {
  return args.blocks ? LaunchOf<true>(args, shape, stream) : LaunchOf<false>(args, shape, stream);
}

}  // namespace millrace
