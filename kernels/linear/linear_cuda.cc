#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/linear/linear_impl.h"
#include "kernels/linear/linear_kernel.h"

namespace millrace {
namespace {

LinearKernelArgs KernelArgs(const LinearArgs& args) {
  return {.x = args.x.data,
          .weight = args.weight.data,
          .bias = args.bias ? args.bias->data : nullptr,
          .y = args.y.data,
          .x_stride = args.x.stride(0),
          .weight_stride = args.weight.stride(0),
          .y_stride = args.y.stride(0),
          .tokens = static_cast<int32_t>(args.x.dim(0)),
          .inputs = static_cast<int32_t>(args.x.dim(1)),
          .outputs = static_cast<int32_t>(args.weight.dim(0)),
          .x_bf16 = args.x.dtype == DType::kBF16,
          .weight_bf16 = args.weight.dtype == DType::kBF16,
          .bias_bf16 = args.bias && args.bias->dtype == DType::kBF16,
          .y_bf16 = args.y.dtype == DType::kBF16};
}

CublasGemm GemmOf(const LinearArgs& args) {
  return {.x = args.x.data,
          .w = args.weight.data,
          .bias = args.bias ? args.bias->data : nullptr,
          .y = args.y.data,
          .tokens = args.x.dim(0),
          .inputs = args.x.dim(1),
          .outputs = args.weight.dim(0),
          .x_stride = args.x.stride(0),
          .w_stride = args.weight.stride(0),
          .y_stride = args.y.stride(0),
          .in_dtype = args.x.dtype,
          .out_dtype = args.y.dtype};
}

}  // namespace

absl::Status LinearCublas(const OpContext& ctx, const LinearArgs& args) {
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const workspace, scope.Take(CublasLt::kWorkspaceBytes));
  return CudaDevice::Of(ctx.device).cublas().Run(GemmOf(args), workspace, ToCuda(ctx.stream));
}

absl::Status LinearCuda(const OpContext& ctx, const LinearArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (args.x.dim(0) > kMax || args.x.dim(1) > kMax || args.weight.dim(0) > kMax) {
    return absl::UnimplementedError("Linear: a dimension above 2^31 - 1 on cuda");
  }
  const cudaStream_t stream = ToCuda(ctx.stream);
  const LinearCudaPath path = ChooseLinearCuda(args, CudaDevice::Of(ctx.device).multiprocessors());
  if (path.kernel == LinearCudaKernel::kSkinny) {
    return CudaStatus(LaunchLinearSkinny(path.shape, KernelArgs(args), stream), "Linear");
  }
  if (path.kernel == LinearCudaKernel::kCublas) {
    const absl::Status status = LinearCublas(ctx, args);
    if (!absl::IsUnimplemented(status)) return status;
  }
  return CudaStatus(LaunchLinearGeneric(KernelArgs(args), stream), "Linear");
}

int64_t LinearCudaWorkspaceBytes() { return CublasLt::kWorkspaceBytes; }

}  // namespace millrace
