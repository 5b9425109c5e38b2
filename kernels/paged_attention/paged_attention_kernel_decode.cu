// Launches of decode: head size, tiles of 8 query rows, warps of a block. One file a kind of cache.
#include "kernels/paged_attention/paged_attention_kernel_decode_launch.cuh"

namespace millrace {

cudaError_t LaunchPagedDecode(const PagedAttentionKernelArgs& args, bool large_blocks,
                              cudaStream_t stream) {
  return decode::LaunchOn<decode::Bf16Cache>(args, large_blocks, stream);
}

}  // namespace millrace
