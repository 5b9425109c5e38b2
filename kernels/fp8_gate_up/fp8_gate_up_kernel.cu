// The kernel of fp8_gemm for many tokens: a tile of 256 columns is 128 rows of gate and theirs of
// up, so both sums of an output end in one thread, and the 128 outputs of a row, which share a
// scale, in four lanes.
#include "kernels/fp8_gate_up/fp8_gate_up_kernel.h"
#include "kernels/fp8_gemm/fp8_gemm_kernel_tiles_launch.cuh"

namespace millrace {
namespace {

template <bool kBlocks>
cudaError_t LaunchGated(const Fp8GemmKernelArgs& args, int multiprocessors, cudaStream_t stream) {
  using T = fp8_tiles::Traits<2, 128, kBlocks, fp8_tiles::Dense, true>;
  const int tiles = fp8_tiles::Order::Of<T>(args.tokens, args.outputs).tiles();
  return fp8_tiles::LaunchWith<T>(args, {}, {tiles, multiprocessors}, stream);
}

}  // namespace

cudaError_t LaunchFp8GateUp(const Fp8GemmKernelArgs& args, int32_t multiprocessors,
                            cudaStream_t stream) {
  return args.blocks ? LaunchGated<true>(args, multiprocessors, stream)
                     : LaunchGated<false>(args, multiprocessors, stream);
}

}  // namespace millrace
