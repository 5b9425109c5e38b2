// The CUDA row: which kernels a step needs, and their arguments.
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/core/rows_aligned.h"
#include "kernels/core/status.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/paged_attention/paged_attention_impl.h"
#include "kernels/paged_attention/paged_attention_kernel.h"
#include "kernels/paged_attention/paged_attention_kernel_prefill.h"

namespace millrace {
namespace {

absl::Status CheckPlan(const PagedAttentionCall& call) {
  const PagedAttentionPlan& plan = call.plan;
  const TensorView& data = call.args.plan_data;
  if (plan.target.device != DeviceType::kCuda) {
    return absl::InvalidArgumentError("PagedAttention: planned for cpu, called on cuda");
  }
  const int64_t bytes = data.data == nullptr ? 0 : data.size() * DTypeBytes(data.dtype);
  if (bytes < plan.layout.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("PagedAttention: plan_data has ", bytes, " bytes, want ", plan.layout.bytes));
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (call.args.page_table.dim(1) > kMax || call.args.q.dim(0) * call.plan.shape.q_heads > kMax) {
    return absl::UnimplementedError("PagedAttention: more than 2^31 - 1 rows or pages on cuda");
  }
  return absl::OkStatus();
}

bool IsFp8(const PagedAttentionCall& call) { return call.args.k_cache.dtype == DType::kU8; }

// bf16 queries on a cache of bf16, or of codes whose rows, too, are multiples of 16 bytes.
bool TakesTensorCores(const PagedAttentionCall& call) {
  const PagedAttentionArgs& args = call.args;
  return args.q.dtype == DType::kBF16 && args.k_cache.dtype != DType::kF32 && RowsAligned(args.q) &&
         RowsAligned(args.k_cache) && RowsAligned(args.v_cache) && RowsAligned(args.out) &&
         !(IsFp8(call) && call.plan.shape.head_dim % 16 != 0);
}

PagedAttentionKernelArgs KernelArgs(const PagedAttentionCall& call) {
  const PagedAttentionArgs& a = call.args;
  const PagedAttentionShape& shape = call.plan.shape;
  return {.q = a.q.data,
          .k_cache = a.k_cache.data,
          .v_cache = a.v_cache.data,
          .out = a.out.data,
          .k_scale = a.k_scale.as<const float>(),
          .v_scale = a.v_scale.as<const float>(),
          .page_table = a.page_table.as<int32_t>(),
          .q_token = a.q.stride(0),
          .q_head = a.q.stride(1),
          .out_token = a.out.stride(0),
          .out_head = a.out.stride(1),
          .k_page = a.k_cache.stride(0),
          .k_head = a.k_cache.stride(1),
          .k_token = a.k_cache.stride(2),
          .v_page = a.v_cache.stride(0),
          .v_head = a.v_cache.stride(1),
          .v_token = a.v_cache.stride(2),
          .table_row = a.page_table.stride(0),
          .max_pages = static_cast<int32_t>(a.page_table.dim(1)),
          .page_tokens = static_cast<int32_t>(a.k_cache.dim(2)),
          .kv_heads = shape.kv_heads,
          .group = shape.q_heads / shape.kv_heads,
          .head_dim = shape.head_dim,
          .scale = a.scale};
}

PagedCacheType CacheTypeOf(const PagedAttentionArgs& args) {
  if (args.k_cache.dtype == DType::kU8) return PagedCacheType::kE4M3;
  return args.k_cache.dtype == DType::kF32 ? PagedCacheType::kF32 : PagedCacheType::kBf16;
}

cudaError_t RunPlain(const PagedAttentionCall& call, cudaStream_t stream) {
  return LaunchPagedPlain({.common = KernelArgs(call),
                           .q_start = call.args.q_start.as<int32_t>(),
                           .kv_len = call.args.kv_len.as<int32_t>(),
                           .tokens = static_cast<int32_t>(call.args.q.dim(0)),
                           .sequences = static_cast<int32_t>(call.plan.kv_len.size()),
                           .q_is_bf16 = call.args.q.dtype == DType::kBF16,
                           .cache = CacheTypeOf(call.args)},
                          stream);
}

cudaError_t RunTiles(const PagedAttentionCall& call, const PagedAttentionKernelArgs& args,
                     cudaStream_t stream) {
  return IsFp8(call) ? LaunchPagedTilesFp8(args, stream) : LaunchPagedTiles(args, stream);
}

// The sequences of few queries. The grid holds as many items as any plan of this layout has.
cudaError_t RunDecode(const PagedAttentionCall& call, PagedAttentionKernelArgs args,
                      const char* plan_data, cudaStream_t stream) {
  const PagedAttentionPlan& plan = call.plan;
  args.work = reinterpret_cast<const PagedAttentionWork*>(plan_data + plan.layout.decode);
  args.items = plan.layout.decode_items;
  args.tile_rows = PagedAttentionDecodeTileRows(plan.shape, plan.decode_queries);
  if (PagedDecodeTakes(args)) {
    const bool large = PagedAttentionLargeBlocks(
        plan.target, plan.shape, static_cast<int64_t>(plan.kv_len.size()), args.tile_rows);
    if (large && plan.target.compute_capability == 90 && args.head_dim == 128) {
      const auto launch = IsFp8(call) ? LaunchPagedDecodeFewFp8 : LaunchPagedDecodeFew;
      return launch(args, call.args.k_cache.dim(0), stream);
    }
    const auto launch = IsFp8(call) ? LaunchPagedDecodeFp8 : LaunchPagedDecode;
    return launch(args, large, stream);
  }
  return RunTiles(call, args, stream);
}

// Whether sm_90's own kernel, which does not split keys, has tiles enough to be the faster one.
bool TakesHopper(const PagedAttentionPlan& plan, const PagedAttentionKernelArgs& args) {
  const int64_t blocks = int64_t{plan.layout.hopper_tiles} * args.kv_heads;
  return PagedPrefillTakes(args.head_dim, args.page_tokens, args.group) && args.scale > 0 &&
         args.k_token == args.head_dim && args.v_token == args.head_dim &&
         3 * blocks >= plan.target.multiprocessors;
}

cudaError_t RunHopper(const PagedAttentionCall& call, const PagedAttentionKernelArgs& args,
                      char* plan_data, cudaStream_t stream) {
  const auto launch = IsFp8(call) ? LaunchPagedPrefillFp8 : LaunchPagedPrefill;
  return launch({.q = args.q,
                 .k_cache = args.k_cache,
                 .v_cache = args.v_cache,
                 .out = args.out,
                 .k_scale = args.k_scale,
                 .v_scale = args.v_scale,
                 .page_table = args.page_table,
                 .q_start = call.args.q_start.as<int32_t>(),
                 .kv_len = call.args.kv_len.as<int32_t>(),
                 .work = reinterpret_cast<PagedPrefillWork*>(plan_data + call.plan.layout.hopper),
                 .q_token_stride = args.q_token,
                 .q_head_stride = args.q_head,
                 .out_token_stride = args.out_token,
                 .out_head_stride = args.out_head,
                 .k_page_stride = args.k_page,
                 .k_head_stride = args.k_head,
                 .v_page_stride = args.v_page,
                 .v_head_stride = args.v_head,
                 .page_table_stride = args.table_row,
                 .tokens = static_cast<int32_t>(call.args.q.dim(0)),
                 .pages = static_cast<int32_t>(call.args.k_cache.dim(0)),
                 .page_tokens = args.page_tokens,
                 .q_heads = args.kv_heads * args.group,
                 .kv_heads = args.kv_heads,
                 .head_dim = args.head_dim,
                 .scale = args.scale},
                stream);
}

cudaError_t RunPrefill(const PagedAttentionCall& call, PagedAttentionKernelArgs args,
                       char* plan_data, cudaStream_t stream) {
  const PagedAttentionPlan& plan = call.plan;
  if (TakesHopper(plan, args)) return RunHopper(call, args, plan_data, stream);
  args.work = reinterpret_cast<const PagedAttentionWork*>(plan_data + plan.layout.prefill);
  args.items = plan.layout.prefill_items;
  args.tile_rows = kAttentionLargeTileRows;
  return RunTiles(call, args, stream);
}

}  // namespace

absl::Status PagedAttentionCuda(const OpContext& ctx, const PagedAttentionCall& call) {
  RETURN_IF_ERROR(CheckPlan(call));
  const PagedAttentionPlan& plan = call.plan;
  const cudaStream_t stream = ToCuda(ctx.stream);
  WorkspaceScope workspace(ctx.workspace);
  ASSIGN_OR_RETURN(void* partials,
                   workspace.Take(PagedAttentionCudaPartialBytes(plan.target, plan.shape)));
  if (!TakesTensorCores(call)) return CudaStatus(RunPlain(call, stream), "PagedAttention");

  PagedAttentionKernelArgs args = KernelArgs(call);
  char* plan_data = call.args.plan_data.as<char>();
  args.arrivals = reinterpret_cast<int32_t*>(plan_data + plan.layout.arrivals);
  args.partials = static_cast<float*>(partials);
  cudaError_t error = cudaSuccess;
  if (plan.layout.decode_items > 0) error = RunDecode(call, args, plan_data, stream);
  if (error == cudaSuccess && plan.layout.prefill_items > 0) {
    error = RunPrefill(call, args, plan_data, stream);
  }
  if (error == cudaErrorNotSupported) error = RunPlain(call, stream);
  return CudaStatus(error, "PagedAttention");
}

}  // namespace millrace
