#include "kernels/fp8_gemm/fp8_gemm_kernel_few_launch.cuh"
#include "kernels/fp8_grouped_gemm/fp8_grouped_gemm_kernel_work.cuh"

namespace millrace {
namespace {

template <typename T>
cudaError_t LaunchOf(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  const Fp8GemmKernelArgs& args = launch.args;
  // The most tiles that there can be.
  const int64_t rows = int64_t{args.tokens} / T::kTokens + args.groups;
  const int64_t tiles = rows * ((args.outputs + T::kOutputs - 1) / T::kOutputs);
  const int64_t blocks = tiles < launch.multiprocessors ? tiles : launch.multiprocessors;
  return fp8_few::LaunchWith<T>(args, launch.groups, blocks, stream);
}

template <int kTokens, int kRing>
using Traits = fp8_few::Traits<kTokens, kRing, true, fp8_grouped::FewWork>;

}  // namespace

cudaError_t LaunchFp8GroupedGemmFew(const Fp8GroupedLaunch& launch, cudaStream_t stream) {
  // Room for groups larger than expected: a second chunk of rows takes as long as the first.
  const int rows = launch.expected_rows + launch.expected_rows / 4;
  if (rows <= 8) return LaunchOf<Traits<8, 6>>(launch, stream);
  if (rows <= 16) return LaunchOf<Traits<16, 6>>(launch, stream);
  if (rows <= 32) return LaunchOf<Traits<32, 5>>(launch, stream);
  if (rows <= 64) return LaunchOf<Traits<64, 4>>(launch, stream);
  return LaunchOf<Traits<128, 6>>(launch, stream);
}

}  // namespace millrace
