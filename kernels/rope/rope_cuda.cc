#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/rope/rope_impl.h"
#include "kernels/rope/rope_kernel.h"

namespace millrace {
namespace {

RopeVariant ChooseVariant(const TensorView& x) {
  if (x.dtype == DType::kF32) return RopeVariant::kF32;
  const bool aligned = x.dim(2) % 16 == 0 && RowsAligned(x);
  return aligned ? RopeVariant::kBf16Vector : RopeVariant::kBf16;
}

}  // namespace

absl::Status RopeCuda(const OpContext& ctx, const RopeArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax) {
    return absl::UnimplementedError("Rope: more than 2^30 tokens or heads on cuda");
  }
  const RopeKernelArgs kernel_args = {.x = args.x.data,
                                      .positions = args.positions.as<const int32_t>(),
                                      .inv_freq = args.inv_freq.as<const float>(),
                                      .token_stride = args.x.stride(0),
                                      .head_stride = args.x.stride(1),
                                      .tokens = static_cast<int32_t>(args.x.dim(0)),
                                      .heads = static_cast<int32_t>(args.x.dim(1)),
                                      .dim = static_cast<int32_t>(args.x.dim(2))};
  return CudaStatus(LaunchRope(ChooseVariant(args.x), kernel_args, ToCuda(ctx.stream)), "Rope");
}

}  // namespace millrace
