#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/quantize/code_views.h"
#include "kernels/quantize/quantize_impl.h"
#include "kernels/quantize/quantize_kernel.h"

namespace millrace {
namespace {

QuantizeKernelArgs KernelArgs(const QuantizeArgs& args) {
  return {
      .x = args.x.data,
      .x_stride = args.x.stride(0),
      .tokens = static_cast<int32_t>(args.x.dim(0)),
      .size = static_cast<int32_t>(args.x.dim(1)),
      .out = CodeArgsOf(args),
      .x_bf16 = args.x.dtype == DType::kBF16,
      .aligned = args.x.dim(1) % 8 == 0 && RowsStartOn(args.x, 16) && CodesTakeVectors(args.codes),
      .transposed = args.transposed};
}

cudaError_t LaunchUnits(const QuantizeKernelArgs& args, QuantizeUnit unit, cudaStream_t stream) {
  if (unit == QuantizeUnit::kChannel) return LaunchQuantizeChannels(args, stream);
  if (unit == QuantizeUnit::kToken) return LaunchQuantizeTokens(args, stream);
  return args.transposed ? LaunchQuantizeTurnedGroups(args, stream)
                         : LaunchQuantizeGroups(args, stream);
}

}  // namespace

absl::Status QuantizeCuda(const OpContext& ctx, const QuantizeArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax) {
    return absl::UnimplementedError("Quantize: more than 2^30 tokens or elements on cuda");
  }
  const cudaStream_t stream = ToCuda(ctx.stream);
  const QuantizeKernelArgs kernel_args = KernelArgs(args);
  if (args.unit != QuantizeUnit::kTensor) {
    return CudaStatus(LaunchUnits(kernel_args, args.unit, stream), "Quantize");
  }
  static_assert(kQuantizeMaxima * sizeof(float) <= kQuantizeWorkspaceBytes);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const maxima, scope.Take(kQuantizeMaxima * sizeof(float)));
  return CudaStatus(LaunchQuantizeTensor(kernel_args, static_cast<float*>(maxima), stream),
                    "Quantize");
}

}  // namespace millrace
