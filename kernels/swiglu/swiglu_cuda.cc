#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/swiglu/swiglu_impl.h"
#include "kernels/swiglu/swiglu_kernel.h"

namespace millrace {
namespace {

// Whether every row starts on 16 bytes.
bool RowsAligned(const TensorView& t) {
  const bool stride = t.dim(0) <= 1 || t.stride(0) % 8 == 0;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && stride;
}

SwigluVariant ChooseVariant(const SwigluArgs& args) {
  if (args.x.dtype == DType::kF32) return SwigluVariant::kF32;
  const bool aligned = SwigluBlock(args) % 8 == 0 && RowsAligned(args.x) && RowsAligned(args.y);
  return aligned ? SwigluVariant::kBf16Vector : SwigluVariant::kBf16;
}

}  // namespace

absl::Status SwigluCuda(const OpContext& ctx, const SwigluArgs& args) {
  if (args.y.dim(0) > std::numeric_limits<int32_t>::max() / args.y.dim(1)) {
    return absl::UnimplementedError("Swiglu: more than 2^31 - 1 outputs on cuda");
  }
  const SwigluKernelArgs kernel_args = {.x = args.x.data,
                                        .y = args.y.data,
                                        .x_stride = args.x.stride(0),
                                        .y_stride = args.y.stride(0),
                                        .tokens = static_cast<int32_t>(args.y.dim(0)),
                                        .size = static_cast<int32_t>(args.y.dim(1)),
                                        .block = static_cast<int32_t>(SwigluBlock(args)),
                                        .limit = SwigluLimit(args)};
  return CudaStatus(LaunchSwiglu(ChooseVariant(args), kernel_args, ToCuda(ctx.stream)), "Swiglu");
}

}  // namespace millrace
