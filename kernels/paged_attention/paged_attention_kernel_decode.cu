// Launches of decode: head size, tiles of 8 query rows, how parts are joined.
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

template <int kDim, int kTiles, decode::Join kJoin>
constexpr Variant Make() {
  using T = decode::Traits<kDim, kTiles, kJoin>;
  return {decode::PagedDecode<T>, T::kWarps * 32, sizeof(typename T::Shared)};
}

template <decode::Join kJoin>
constexpr Variant kVariants[][2] = {
    {Make<64, 1, kJoin>(), Make<64, 2, kJoin>()},
    {Make<96, 1, kJoin>(), Make<96, 2, kJoin>()},
    {Make<128, 1, kJoin>(), Make<128, 2, kJoin>()},
    {Make<256, 1, kJoin>(), Make<256, 2, kJoin>()},
};

Variant VariantFor(const PagedAttentionKernelArgs& args) {
  const int tiles = args.tile_rows == 8 ? 0 : 1;
  const int dim = args.head_dim <= 64 ? 0 : args.head_dim <= 96 ? 1 : args.head_dim <= 128 ? 2 : 3;
  return args.cluster > 1 ? kVariants<decode::Join::kCluster>[dim][tiles]
                          : kVariants<decode::Join::kGlobal>[dim][tiles];
}

}  // namespace

cudaError_t LaunchPagedDecode(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  const Variant variant = VariantFor(args);
  PagedAttentionKernelArgs full = args;
  full.k_page_bytes = static_cast<uint32_t>(args.k_page * 2);
  full.v_page_bytes = static_cast<uint32_t>(args.v_page * 2);
  full.chunks_per_page = static_cast<uint32_t>(args.page_tokens / decode::kChunk);
  full.chunk_reciprocal = ((1u << 31) + full.chunks_per_page - 1) / full.chunks_per_page;
  full.scale_log2 = args.scale * kLog2E;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(static_cast<unsigned>(variant.threads)),
                             .shared_bytes = variant.shared_bytes,
                             .cluster = args.cluster};
  return Launch(variant.kernel, shape, stream, full);
}

}  // namespace millrace
