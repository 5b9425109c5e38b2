#include "kernels/fp8_gemm/fp8_gemm_kernel_split_launch.cuh"

namespace millrace {
namespace {

template <int kTokens, bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmCut& cut, cudaStream_t stream) {
  using fp8_split::LaunchWith;
  using fp8_split::Traits;
  return cut.narrow ? LaunchWith<Traits<kTokens, 1, kBlocks>>(args, cut.splits, stream)
                    : LaunchWith<Traits<kTokens, 2, kBlocks>>(args, cut.splits, stream);
}

template <bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmCut& cut, cudaStream_t stream) {
  if (args.tokens <= 8) return LaunchOf<8, kBlocks>(args, cut, stream);
  if (args.tokens <= 16) return LaunchOf<16, kBlocks>(args, cut, stream);
  if (kBlocks || args.tokens <= 32) return LaunchOf<32, kBlocks>(args, cut, stream);
  return LaunchOf<64, false>(args, cut, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmSplit(const Fp8GemmKernelArgs& args, const Fp8GemmCut& cut,
                               cudaStream_t stream) {
  if (args.tokens > (args.blocks ? 32 : 64)) return cudaErrorInvalidValue;
  return args.blocks ? LaunchOf<true>(args, cut, stream) : LaunchOf<false>(args, cut, stream);
}

}  // namespace millrace
