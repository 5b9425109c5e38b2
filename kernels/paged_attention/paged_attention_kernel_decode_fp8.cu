// Decode on a cache of E4M3 codes.
#include "kernels/paged_attention/paged_attention_kernel_decode_launch.cuh"

namespace millrace {

cudaError_t LaunchPagedDecodeFp8(const PagedAttentionKernelArgs& args, bool large_blocks,
                                 cudaStream_t stream) {
  return decode::LaunchOn<decode::Fp8Cache>(args, large_blocks, stream);
}

}  // namespace millrace
