// Tiles on a bf16 cache.
#include "kernels/paged_attention/paged_attention_kernel_tiles.cuh"

namespace millrace {

cudaError_t LaunchPagedTiles(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  return tiles::LaunchOn<tiles::Bf16Tile>(args, stream);
}

}  // namespace millrace
