#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/core/status.h"
#include "kernels/cuda/cuda_device_impl.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/stored_linear/stored_linear_impl.h"
#include "kernels/stored_linear/stored_linear_kernel.h"

namespace millrace {
namespace {

// Tokens that are prepared at once. Bounds the workspace.
constexpr int64_t kMaxTokens = 256;

}  // namespace

int64_t StoredLinearCudaWorkspaceBytes(int64_t max_inputs) {
  return (kMaxTokens * max_inputs * kPreparedBytes + 255) / 256 * 256;
}

absl::Status StoredLinearCuda(const OpContext& ctx, const StoredLinearArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() - 128;
  if (args.weight.rows > kMax || args.weight.cols > kMax) {
    return absl::UnimplementedError("StoredLinear: 2^31 rows or columns of a weight on cuda");
  }
  const CudaDevice& device = CudaDevice::Of(ctx.device);
  const int64_t most = std::min(args.x.dim(0), kMaxTokens);
  WorkspaceScope scope(ctx.workspace);
  ASSIGN_OR_RETURN(void* const prepared, scope.Take(most * args.weight.cols * kPreparedBytes));
  StoredLinearKernelArgs chunk = {.x_stride = args.x.stride(0),
                                  .y_stride = args.y.stride(0),
                                  .x_bf16 = args.x.dtype == DType::kBF16,
                                  .y_bf16 = args.y.dtype == DType::kBF16,
                                  .rounds = args.rounding == ActivationRounding::kFp8Per128,
                                  .weight = StoredMatrixArgsOf(args.weight),
                                  .prepared = prepared};
  const bool tiles = device.compute_capability() == 90 && CoversTiles(chunk);
  for (int64_t first = 0; first < args.x.dim(0); first += most) {
    const int64_t end = std::min(first + most, args.x.dim(0));
    chunk.tokens = static_cast<int32_t>(end - first);
    chunk.x = args.x.Rows(first, end).data;
    chunk.y = args.y.Rows(first, end).data;
    const cudaStream_t stream = ToCuda(ctx.stream);
    RETURN_IF_ERROR(
        CudaStatus(tiles ? LaunchStoredLinearTiles(chunk, device.multiprocessors(), stream)
                         : LaunchStoredLinearPlain(chunk, stream),
                   "StoredLinear"));
  }
  return absl::OkStatus();
}

}  // namespace millrace
