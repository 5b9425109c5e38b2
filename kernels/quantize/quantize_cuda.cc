#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/quantize/quantize_impl.h"
#include "kernels/quantize/quantize_kernel.h"

namespace millrace {
namespace {

// Whether every row starts on `bytes`.
bool RowsOn(const TensorView& t, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(bytes) == 0 &&
         (t.dim(0) <= 1 || t.stride(0) * DTypeBytes(t.dtype) % bytes == 0);
}

QuantizeKernelArgs KernelArgs(const QuantizeArgs& args) {
  return {.x = args.x.data,
          .codes = args.codes.as<uint8_t>(),
          .scale = args.scale.as<float>(),
          .x_stride = args.x.stride(0),
          .codes_stride = args.codes.stride(0),
          .scale_stride = args.scale.stride(0),
          .tokens = static_cast<int32_t>(args.x.dim(0)),
          .size = static_cast<int32_t>(args.x.dim(1)),
          .x_bf16 = args.x.dtype == DType::kBF16,
          .power_of_two = args.rounding == QuantizeScale::kPowerOfTwo,
          .vectors = args.x.dim(1) % 8 == 0 && RowsOn(args.x, 16) && RowsOn(args.codes, 8)};
}

}  // namespace

absl::Status QuantizeCuda(const OpContext& ctx, const QuantizeArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax) {
    return absl::UnimplementedError("Quantize: more than 2^30 tokens or elements on cuda");
  }
  const cudaStream_t stream = ToCuda(ctx.stream);
  const QuantizeKernelArgs kernel_args = KernelArgs(args);
  switch (args.unit) {
    case QuantizeUnit::kGroup:
      return CudaStatus(LaunchQuantizeGroups(kernel_args, stream), "Quantize");
    case QuantizeUnit::kToken:
      return CudaStatus(LaunchQuantizeTokens(kernel_args, stream), "Quantize");
    case QuantizeUnit::kTensor:
      break;
  }
  static_assert(kQuantizeMaxima * sizeof(float) <= kQuantizeWorkspaceBytes);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const maxima, scope.Take(kQuantizeMaxima * sizeof(float)));
  return CudaStatus(LaunchQuantizeTensor(kernel_args, static_cast<float*>(maxima), stream),
                    "Quantize");
}

}  // namespace millrace
