#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/latent_append/latent_append_impl.h"
#include "kernels/latent_append/latent_append_kernel.h"
#include "kernels/latent_cache/latent_store_args_of.h"

namespace millrace {

absl::Status LatentAppendCuda(const OpContext& ctx, const LatentAppendArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  if (args.rows.dim(0) > kMax || args.rows.dim(1) > kMax ||
      args.store.dim(0) > kMax / std::max<int64_t>(1, args.store.dim(2))) {
    return absl::UnimplementedError("LatentAppend: a size of more than 2^30 on cuda");
  }
  const LatentAppendKernelArgs kernel_args = {
      .rows = args.rows.data,
      .slots = args.slots.as<const int64_t>(),
      .store = LatentStoreArgsOf(args.store, args.rows.dim(1)),
      .row_stride = args.rows.stride(0),
      .tokens = static_cast<int32_t>(args.rows.dim(0)),
      .rows_bf16 = args.rows.dtype == DType::kBF16,
      .rows_aligned = RowsAligned(args.rows)};
  return CudaStatus(LaunchLatentAppend(kernel_args, ToCuda(ctx.stream)), "LatentAppend");
}

}  // namespace millrace
