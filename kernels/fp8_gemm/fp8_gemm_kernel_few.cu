#include "kernels/fp8_gemm/fp8_gemm_kernel_few_launch.cuh"

namespace millrace {
namespace {

// At most half of the SM, so that the next kernel fits beside it; at 128 tokens it cannot.
// README.md has what was measured.
template <bool kBlocks>
cudaError_t LaunchOf(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split, int multiprocessors,
                     cudaStream_t stream) {
  using fp8_few::LaunchWith;
  using fp8_few::Traits;
  if (args.tokens <= 8) {
    return LaunchWith<Traits<8, 4, kBlocks>>(args, split, multiprocessors, stream);
  }
  if (args.tokens <= 16) {
    return LaunchWith<Traits<16, 6, kBlocks>>(args, split, multiprocessors, stream);
  }
  if (args.tokens <= 32) {
    return LaunchWith<Traits<32, 5, kBlocks>>(args, split, multiprocessors, stream);
  }
  if (args.tokens <= 64) {
    return LaunchWith<Traits<64, 4, kBlocks>>(args, split, multiprocessors, stream);
  }
  return LaunchWith<Traits<128, 6, kBlocks>>(args, split, multiprocessors, stream);
}

}  // namespace

cudaError_t LaunchFp8GemmFew(const Fp8GemmKernelArgs& args, const Fp8GemmSplit& split,
                             int32_t multiprocessors, cudaStream_t stream) {
  return args.blocks ? LaunchOf<true>(args, split, multiprocessors, stream)
                     : LaunchOf<false>(args, split, multiprocessors, stream);
}

}  // namespace millrace
