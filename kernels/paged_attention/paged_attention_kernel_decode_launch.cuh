// Launches of decode on one kind of cache: head size, tiles of 8 query rows, warps of a block.
#ifndef KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_LAUNCH_CUH_
#define KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_LAUNCH_CUH_

#include "kernels/paged_attention/paged_attention_kernel_decode.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace::decode {

using Kernel = void (*)(PagedAttentionKernelArgs);

struct Variant {
  Kernel kernel = nullptr;
  int threads = 0;
  size_t shared_bytes = 0;
};

template <typename Cache>
struct Variants {
  template <int kDim, int kTiles, int kWarps = kSmallWarps>
  static constexpr Variant Make() {
    using T = Traits<kDim, kTiles, kWarps, Cache>;
    return {PagedDecode<T>, T::kWarps * 32, sizeof(typename T::Shared)};
  }

  // By head size (64, 96, 128, 256), then tile rows (8, 16, 32).
  static constexpr Variant kSmall[4][3] = {
      {Make<64, 1>(), Make<64, 2>(), Make<64, 4>()},
      {Make<96, 1>(), Make<96, 2>(), Make<96, 4>()},
      {Make<128, 1>(), Make<128, 2>(), Make<128, 4>()},
      {Make<256, 1>(), Make<256, 2>(), {}},
  };
  static constexpr Variant kLarge[3] = {Make<64, 1, kLargeWarps>(), Make<96, 1, kLargeWarps>(),
                                        Make<128, 1, kLargeWarps>()};

  static Variant For(const PagedAttentionKernelArgs& args, bool large_blocks) {
    const int tiles = args.tile_rows == 8 ? 0 : args.tile_rows == 16 ? 1 : 2;
    const int size = args.head_dim;
    const int dim = size <= 64 ? 0 : size <= 96 ? 1 : size <= 128 ? 2 : 3;
    if (!large_blocks) return kSmall[dim][tiles];
    return dim < 3 && tiles == 0 ? kLarge[dim] : Variant{};
  }
};

template <typename Cache>
cudaError_t LaunchOn(const PagedAttentionKernelArgs& args, bool large_blocks, cudaStream_t stream) {
  const Variant variant = Variants<Cache>::For(args, large_blocks);
  if (variant.kernel == nullptr) return cudaErrorInvalidValue;
  PagedAttentionKernelArgs full = args;
  full.k_page_bytes = static_cast<uint32_t>(args.k_page * Cache::kBytes);
  full.v_page_bytes = static_cast<uint32_t>(args.v_page * Cache::kBytes);
  full.pieces_per_page = static_cast<uint32_t>(args.page_tokens / kPieceKeys);
  full.piece_reciprocal = ((1u << 31) + full.pieces_per_page - 1) / full.pieces_per_page;
  full.scale_log2 = args.scale * kLog2E;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(static_cast<unsigned>(variant.threads)),
                             .shared_bytes = variant.shared_bytes};
  return Launch(variant.kernel, shape, stream, full);
}

}  // namespace millrace::decode

#endif  // KERNELS_PAGED_ATTENTION_PAGED_ATTENTION_KERNEL_DECODE_LAUNCH_CUH_
