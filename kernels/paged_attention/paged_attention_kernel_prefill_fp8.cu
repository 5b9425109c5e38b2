// Prefill for Hopper on a cache of E4M3 codes.
#include "kernels/paged_attention/paged_attention_kernel_prefill_launch.cuh"

namespace millrace {

cudaError_t LaunchPagedPrefillFp8(const PagedPrefillArgs& args, cudaStream_t stream) {
  using prefill::LaunchTraits, prefill::Sizes, prefill::Traits;
  switch (args.head_dim) {
    case 64:
      return LaunchTraits<Traits<64, Sizes{128, 8, 2, 3, 4}>>(args, stream);
    case 96:
      return LaunchTraits<Traits<96, Sizes{96, 4, 2, 3, 3}>>(args, stream);
    case 128:
      return LaunchTraits<Traits<128, Sizes{128, 4, 2, 2, 2}>>(args, stream);
    case 256:
      return LaunchTraits<Traits<256, Sizes{64, 4, 1, 2, 2}>>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace millrace
