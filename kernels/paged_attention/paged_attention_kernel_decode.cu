// Launches of decode: head size, tiles of 8 query rows, warps of a block.
#include "kernels/paged_attention/paged_attention_kernel_decode.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace {
namespace {

using Kernel = void (*)(PagedAttentionKernelArgs);

struct Variant {
  Kernel kernel = nullptr;
  int threads = 0;
  size_t shared_bytes = 0;
};

template <int kDim, int kTiles, int kWarps = decode::kSmallWarps>
constexpr Variant Make() {
  using T = decode::Traits<kDim, kTiles, kWarps>;
  return {decode::PagedDecode<T>, T::kWarps * 32, sizeof(typename T::Shared)};
}

// By head size (64, 96, 128, 256), then tile rows (8, 16, 32).
constexpr Variant kVariants[4][3] = {
    {Make<64, 1>(), Make<64, 2>(), Make<64, 4>()},
    {Make<96, 1>(), Make<96, 2>(), Make<96, 4>()},
    {Make<128, 1>(), Make<128, 2>(), Make<128, 4>()},
    {Make<256, 1>(), Make<256, 2>(), {}},
};
constexpr Variant kLargeBlocks[3] = {Make<64, 1, decode::kLargeWarps>(),
                                     Make<96, 1, decode::kLargeWarps>(),
                                     Make<128, 1, decode::kLargeWarps>()};

Variant VariantFor(const PagedAttentionKernelArgs& args, bool large_blocks) {
  const int tiles = args.tile_rows == 8 ? 0 : args.tile_rows == 16 ? 1 : 2;
  const int dim = args.head_dim <= 64 ? 0 : args.head_dim <= 96 ? 1 : args.head_dim <= 128 ? 2 : 3;
  if (!large_blocks) return kVariants[dim][tiles];
  return dim < 3 && tiles == 0 ? kLargeBlocks[dim] : Variant{};
}

}  // namespace

cudaError_t LaunchPagedDecode(const PagedAttentionKernelArgs& args, bool large_blocks,
                              cudaStream_t stream) {
  const Variant variant = VariantFor(args, large_blocks);
  if (variant.kernel == nullptr) return cudaErrorInvalidValue;
  PagedAttentionKernelArgs full = args;
  full.k_page_bytes = static_cast<uint32_t>(args.k_page * 2);
  full.v_page_bytes = static_cast<uint32_t>(args.v_page * 2);
  full.chunks_per_page = static_cast<uint32_t>(args.page_tokens / decode::kChunk);
  full.chunk_reciprocal = ((1u << 31) + full.chunks_per_page - 1) / full.chunks_per_page;
  full.scale_log2 = args.scale * kLog2E;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(static_cast<unsigned>(variant.threads)),
                             .shared_bytes = variant.shared_bytes};
  return Launch(variant.kernel, shape, stream, full);
}

}  // namespace millrace
