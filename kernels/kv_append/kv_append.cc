#include "kernels/kv_append/kv_append.h"

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/kv_append/kv_append_impl.h"
#include "kernels/kv_append/scales.h"

namespace millrace {
namespace {

constexpr OpTable<KvAppendArgs> kKvAppend = {
    .op = "KvAppend", .cpu = KvAppendCpu, .cuda = KvAppendCuda};

}  // namespace

absl::Status KvAppend(const OpContext& ctx, const KvAppendArgs& args) {
  int64_t tokens = kUnbound, heads = kUnbound, dim = kUnbound;
  int64_t pages = kUnbound, page_tokens = kUnbound;
  ShapeChecker checker("KvAppend", ctx.device.type());
  checker.Bind("k", args.k, {&tokens, &heads, &dim}, {DType::kF32, DType::kBF16})
      .Bind("v", args.v, {&tokens, &heads, &dim}, {args.k.dtype})
      .Bind("slots", args.slots, {&tokens}, {DType::kI64})
      .Bind("k_cache", args.k_cache, {&pages, &heads, &page_tokens, &dim},
            {DType::kF32, DType::kBF16, DType::kU8})
      .Bind("v_cache", args.v_cache, {&pages, &heads, &page_tokens, &dim}, {args.k_cache.dtype});
  RETURN_IF_ERROR(
      BindCacheScales({args.k_cache, args.k_scale, args.v_scale}, heads, checker).status());
  if (args.k.empty()) return absl::OkStatus();
  return RunOnDevice(kKvAppend, ctx, args);
}

}  // namespace millrace
