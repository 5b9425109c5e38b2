#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/latent_rope/latent_rope_impl.h"
#include "kernels/latent_rope/latent_rope_kernel.h"

namespace millrace {
namespace {

// Asks for the strides of a single token or head too: the order of a head's sum follows from the
// answer, and must not depend on how many others there are.
LatentRopeVariant ChooseVariant(const LatentRopeArgs& args) {
  const TensorView& x = args.x;
  if (x.dtype == DType::kF32) return LatentRopeVariant::kF32;
  const bool aligned =
      reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride(0) % 8 == 0 && x.stride(1) % 8 == 0;
  const bool whole =
      x.dim(2) % 8 == 0 && x.dim(2) <= kLatentRopeKept && args.inv_freq.dim(0) % 4 == 0;
  return aligned && whole ? LatentRopeVariant::kBf16Vector : LatentRopeVariant::kBf16;
}

}  // namespace

absl::Status LatentRopeCuda(const OpContext& ctx, const LatentRopeArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 64;
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax || args.x.dim(2) > kMax) {
    return absl::UnimplementedError("LatentRope: more than 2^25 tokens, heads or channels on cuda");
  }
  const LatentRopeKernelArgs kernel_args = {.x = args.x.data,
                                            .positions = args.positions.as<const int32_t>(),
                                            .inv_freq = args.inv_freq.as<const float>(),
                                            .token_stride = args.x.stride(0),
                                            .head_stride = args.x.stride(1),
                                            .tokens = static_cast<int32_t>(args.x.dim(0)),
                                            .heads = static_cast<int32_t>(args.x.dim(1)),
                                            .dim = static_cast<int32_t>(args.x.dim(2)),
                                            .pairs = static_cast<int32_t>(args.inv_freq.dim(0)),
                                            .inverse = args.inverse,
                                            .norm = args.norm_eps.has_value(),
                                            .norm_eps = args.norm_eps.value_or(0)};
  return CudaStatus(LaunchLatentRope(ChooseVariant(args), kernel_args, ToCuda(ctx.stream)),
                    "LatentRope");
}

}  // namespace millrace
