#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/swiglu/gated_args.h"
#include "kernels/swiglu/swiglu_impl.h"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {
namespace {

SwigluVariant ChooseVariant(const SwigluArgs& args) {
  if (args.x.dtype == DType::kF32) return SwigluVariant::kF32;
  return SwigluTakesVectors(args) ? SwigluVariant::kBf16Vector : SwigluVariant::kBf16;
}

}  // namespace

absl::Status SwigluCuda(const OpContext& ctx, const SwigluArgs& args) {
  if (args.y.dim(0) > std::numeric_limits<int32_t>::max() / args.y.dim(1)) {
    return absl::UnimplementedError("Swiglu: more than 2^31 - 1 outputs on cuda");
  }
  return CudaStatus(LaunchSwiglu(ChooseVariant(args), GatedKernelArgs(args), ToCuda(ctx.stream)),
                    "Swiglu");
}

}  // namespace millrace
