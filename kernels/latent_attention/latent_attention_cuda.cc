#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/latent_attention/latent_attention_impl.h"
#include "kernels/latent_attention/latent_attention_kernel.h"
#include "kernels/latent_cache/latent_row.h"
#include "kernels/latent_cache/latent_store_args_of.h"

namespace millrace {
namespace {

constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max() / 4;
constexpr int64_t kMaxHeads = 1 << 18;  // a grid's second dimension is a group of at least 8

LatentHeads HeadsOf(const TensorView& t) {
  return {.data = t.data, .token_stride = t.stride(0), .head_stride = t.stride(1)};
}

bool Fits(const LatentAttentionArgs& args) {
  const int64_t rows = args.window_rows.dim(0) * std::max<int64_t>(1, args.window_rows.dim(2));
  const int64_t selected = args.selected ? args.selected->dim(1) : 0;
  return args.q.dim(0) <= kMaxSize && args.q.dim(1) <= kMaxHeads && args.q.dim(2) <= kMaxSize &&
         rows <= kMaxSize && selected <= kMaxSize && args.batch.kv_len.dim(0) <= kMaxSize &&
         args.window_rows.dim(2) * kFp8LatentDataBytes <= kMaxSize;
}

// Also where there is one token: whether others are there must not choose the kernel.
bool TokensOnWords(const TensorView& x) { return x.stride(0) % 8 == 0 && x.stride(1) % 8 == 0; }

bool TakesTensorCores(const LatentAttentionArgs& args) {
  const bool fp8 = args.window_rows.dtype == DType::kU8;
  const auto aligned = [&](const TensorView& rows) { return RowsAligned(rows, fp8 ? 8 : 16); };
  return args.q.dtype == DType::kBF16 && args.q.dim(2) == kFp8LatentDim &&
         args.window_rows.dtype != DType::kF32 && RowsAligned(args.q) && RowsAligned(args.out) &&
         TokensOnWords(args.q) && TokensOnWords(args.out) && aligned(args.window_rows) &&
         (!args.compressed_rows || aligned(*args.compressed_rows));
}

LatentAttentionKernelArgs KernelArgs(const LatentAttentionArgs& args) {
  LatentAttentionKernelArgs kernel = {
      .q = HeadsOf(args.q),
      .out = HeadsOf(args.out),
      .sinks = args.sinks.as<const float>(),
      .q_start = args.batch.q_start.as<const int32_t>(),
      .kv_len = args.batch.kv_len.as<const int32_t>(),
      .page_table = args.batch.page_table.as<const int32_t>(),
      .page_table_stride = args.batch.page_table.stride(0),
      .window_rows = LatentStoreArgsOf(args.window_rows, args.q.dim(2)),
      .sequences = static_cast<int32_t>(args.batch.kv_len.dim(0)),
      .tokens = static_cast<int32_t>(args.q.dim(0)),
      .heads = static_cast<int32_t>(args.q.dim(1)),
      .dim = static_cast<int32_t>(args.q.dim(2)),
      .window = static_cast<int32_t>(std::min(args.window, kMaxSize)),
      .scale = args.scale,
      .is_bf16 = args.q.dtype == DType::kBF16};
  if (args.compressed_rows) {
    kernel.compressed_rows = LatentStoreArgsOf(*args.compressed_rows, args.q.dim(2));
    kernel.ratio = static_cast<int32_t>(args.window_rows.dim(2) / args.compressed_rows->dim(2));
  }
  if (args.selected) {
    kernel.selected = args.selected->as<const int32_t>();
    kernel.selected_stride = args.selected->stride(0);
    kernel.num_selected = static_cast<int32_t>(args.selected->dim(1));
  }
  return kernel;
}

}  // namespace

absl::Status LatentAttentionCuda(const OpContext& ctx, const LatentAttentionArgs& args) {
  if (!Fits(args)) {
    return absl::UnimplementedError(
        "LatentAttention: a size of more than 2^29, or more than 2^18 heads, on cuda");
  }
  const LatentAttentionKernelArgs kernel = KernelArgs(args);
  const cudaStream_t stream = ToCuda(ctx.stream);
  cudaError_t error = cudaErrorNotSupported;
  if (TakesTensorCores(args)) error = LaunchLatentAttentionTensor(kernel, stream);
  if (error == cudaErrorNotSupported) error = LaunchLatentAttentionPlain(kernel, stream);
  if (error == cudaErrorNotSupported) {
    return absl::UnimplementedError(absl::StrCat("LatentAttention: heads of ", kernel.dim,
                                                 " channels do not fit into the shared memory of "
                                                 "a block"));
  }
  return CudaStatus(error, "LatentAttention");
}

}  // namespace millrace
