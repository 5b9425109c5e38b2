// Prefill for Hopper on a bf16 cache: the sizes of each head size.
#include "kernels/paged_attention/paged_attention_kernel_prefill_launch.cuh"

namespace millrace {

cudaError_t LaunchPagedPrefill(const PagedPrefillArgs& args, cudaStream_t stream) {
  using prefill::LaunchTraits, prefill::Sizes, prefill::Traits;
  switch (args.head_dim) {
    case 64:
      return LaunchTraits<Traits<64, Sizes{128, 8, 2, 3}>>(args, stream);
    case 96:
      return LaunchTraits<Traits<96, Sizes{96, 5, 2, 3}>>(args, stream);
    case 128:
      return LaunchTraits<Traits<128, Sizes{128, 5, 2, 2}>>(args, stream);
    case 256:
      return LaunchTraits<Traits<256, Sizes{64, 4, 1, 2}>>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace millrace
