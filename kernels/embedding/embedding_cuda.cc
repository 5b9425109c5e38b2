#include <cstdint>
#include <limits>

#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/embedding/embedding_impl.h"
#include "kernels/embedding/embedding_kernel.h"

namespace millrace {
namespace {

EmbeddingVariant ChooseVariant(const EmbeddingArgs& args) {
  if (args.table.dtype == DType::kF32) {
    return args.y.dtype == DType::kF32 ? EmbeddingVariant::kF32 : EmbeddingVariant::kF32Bf16;
  }
  if (args.y.dtype == DType::kF32) return EmbeddingVariant::kBf16F32;
  const bool aligned = args.y.dim(1) % 8 == 0 && RowsAligned(args.table) && RowsAligned(args.y);
  return aligned ? EmbeddingVariant::kBf16Vector : EmbeddingVariant::kBf16;
}

}  // namespace

absl::Status EmbeddingCuda(const OpContext& ctx, const EmbeddingArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 2;
  const int64_t slots = args.last_tokens ? args.last_tokens->dim(0) : 0;
  if (args.y.dim(0) > kMax || args.y.dim(1) > kMax || args.table.dim(0) > kMax || slots > kMax) {
    return absl::UnimplementedError("Embedding: a size of more than 2^30 on cuda");
  }
  const EmbeddingKernelArgs kernel_args = {
      .ids = args.ids.as<const int32_t>(),
      .last_tokens = args.last_tokens ? args.last_tokens->as<const int32_t>() : nullptr,
      .table = args.table.data,
      .y = args.y.data,
      .table_stride = args.table.stride(0),
      .y_stride = args.y.stride(0),
      .tokens = static_cast<int32_t>(args.y.dim(0)),
      .slots = static_cast<int32_t>(slots),
      .first_id = args.first_id,
      .rows = static_cast<int32_t>(args.table.dim(0)),
      .width = static_cast<int32_t>(args.y.dim(1))};
  return CudaStatus(LaunchEmbedding(ChooseVariant(args), kernel_args, ToCuda(ctx.stream)),
                    "Embedding");
}

}  // namespace millrace
