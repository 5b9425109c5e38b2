// Tiles on a cache of E4M3 codes.
#include "kernels/paged_attention/paged_attention_kernel_tiles.cuh"

namespace millrace {

cudaError_t LaunchPagedTilesFp8(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  return tiles::LaunchOn<tiles::Fp8Tile>(args, stream);
}

}  // namespace millrace
