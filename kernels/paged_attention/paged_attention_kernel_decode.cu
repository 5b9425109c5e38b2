// Launches of decode: head size and tiles of 8 query rows.
#include "kernels/paged_attention/paged_attention_kernel_decode.cuh"
#include "kernels/ptx/launch.cuh"

namespace millrace {
namespace {

using Kernel = void (*)(PagedAttentionKernelArgs, Divisor);

template <int kDim>
constexpr Kernel kKernels[2] = {decode::PagedDecode<kDim, 1>, decode::PagedDecode<kDim, 2>};

Kernel KernelFor(const PagedAttentionKernelArgs& args) {
  const int tiles = args.tile_rows == 8 ? 0 : 1;
  switch (args.head_dim) {
    case 64:
      return kKernels<64>[tiles];
    case 96:
      return kKernels<96>[tiles];
    case 128:
      return kKernels<128>[tiles];
    case 256:
      return kKernels<256>[tiles];
    default:
      return nullptr;
  }
}

}  // namespace

cudaError_t LaunchPagedDecode(const PagedAttentionKernelArgs& args, cudaStream_t stream) {
  const Kernel kernel = KernelFor(args);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(args.items * args.kv_heads)),
                             .block = dim3(decode::kWarps * 32)};
  return Launch(kernel, shape, stream, args, Divisor(args.page_tokens / decode::kChunk));
}

}  // namespace millrace
