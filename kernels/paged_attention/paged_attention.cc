#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv_append/scales.h"
#include "kernels/paged_attention/paged_attention_impl.h"

namespace millrace {
namespace {

constexpr OpTable<PagedAttentionCall> kPagedAttention = {
    .op = "PagedAttention", .cpu = PagedAttentionCpu, .cuda = PagedAttentionCuda};

// The page table must be wide enough for what the plan's sequences read.
absl::Status CheckTableWidth(const PagedAttentionPlan& plan, int64_t page_tokens, int64_t width) {
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    if (plan.q_start[b] == plan.q_start[b + 1]) continue;
    const int64_t needed = (plan.kv_len[b] + page_tokens - 1) / page_tokens;
    if (needed <= width) continue;
    return absl::InvalidArgumentError(absl::StrCat("PagedAttention: sequence ", b, " needs ",
                                                   needed, " pages, page_table.dim(1) = ", width));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PagedAttention(const OpContext& ctx, const PagedAttentionPlan& plan,
                            const PagedAttentionArgs& args) {
  int64_t tokens = plan.q_start.empty() ? 0 : plan.q_start.back();
  int64_t sequences = static_cast<int64_t>(plan.kv_len.size());
  int64_t starts = sequences + 1;
  int64_t q_heads = plan.shape.q_heads, kv_heads = plan.shape.kv_heads, dim = plan.shape.head_dim;
  int64_t pages = kUnbound, page_tokens = kUnbound, max_pages = kUnbound;
  const DType cache = args.k_cache.dtype;
  ShapeChecker checker("PagedAttention", ctx.device.type());
  checker.Bind("q", args.q, {&tokens, &q_heads, &dim}, {DType::kF32, DType::kBF16})
      .Bind("k_cache", args.k_cache, {&pages, &kv_heads, &page_tokens, &dim},
            {DType::kF32, DType::kBF16, DType::kU8})
      .Bind("v_cache", args.v_cache, {&pages, &kv_heads, &page_tokens, &dim}, {cache})
      .Bind("page_table", args.page_table, {&sequences, &max_pages}, {DType::kI32})
      .Bind("q_start", args.q_start, {&starts}, {DType::kI32})
      .Bind("kv_len", args.kv_len, {&sequences}, {DType::kI32})
      .Bind("out", args.out, {&tokens, &q_heads, &dim}, {args.q.dtype})
      .Require(page_tokens > 0 && page_tokens <= 256, "k_cache.dim(2) must be 1 to 256 tokens");
  RETURN_IF_ERROR(
      BindCacheScales({args.k_cache, args.k_scale, args.v_scale}, kv_heads, checker).status());
  if (tokens == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckTableWidth(plan, page_tokens, max_pages));
  return RunOnDevice(kPagedAttention, ctx, PagedAttentionCall{plan, args});
}

int64_t PagedAttentionWorkspaceBytes(Device& device, const PagedAttentionShape& shape,
                                     int64_t max_sequences, int64_t max_tokens) {
  if (device.type() != DeviceType::kCpu) {
    const absl::StatusOr<PagedAttentionTarget> target = PagedAttentionTargetOf(device);
    // A device that cannot be asked fails at the next call that can say so.
    return target.ok() ? PagedAttentionCudaPartialBytes(*target, shape) : 0;
  }
  const int64_t group = shape.q_heads / shape.kv_heads;
  const int64_t rows =
      std::min(max_sequences * kAttentionMaxPartialRows, max_tokens * group * kAttentionMaxSplits);
  const int threads = device.thread_pool()->threads();
  return rows * shape.kv_heads * PagedAttentionPartialRowBytes(shape) +
         PagedAttentionCpuScratchBytes(shape, threads);
}

}  // namespace millrace
