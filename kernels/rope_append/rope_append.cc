#include "kernels/rope_append/rope_append.h"

#include <algorithm>
#include <limits>

#include "kernels/core/op_table.h"
#include "kernels/core/shape_checker.h"
#include "kernels/core/status.h"
#include "kernels/kv_append/scales.h"
#include "kernels/kv_append/slots.h"
#include "kernels/rope/rotation.h"
#include "kernels/rope_append/rope_append_impl.h"

namespace millrace {
namespace {

constexpr OpTable<RopeAppendArgs> kRopeAppend = {
    .op = "RopeAppend", .cpu = RopeAppendCpu, .cuda = RopeAppendCuda};

TokenHeads HeadsOf(const TensorView& t) {
  return {.data = t.data, .token_stride = t.stride(0), .head_stride = t.stride(1)};
}

CachePages PagesOf(const TensorView& t, const TensorView& scale) {
  return {.data = t.data,
          .scale = scale.as<const float>(),
          .page_stride = t.stride(0),
          .head_stride = t.stride(1),
          .slot_stride = t.stride(2)};
}

}  // namespace

RopeAppendTokens TokensOf(const RopeAppendArgs& args) {
  return {.q = HeadsOf(args.q),
          .k = HeadsOf(args.k),
          .v = HeadsOf(args.v),
          .k_cache = PagesOf(args.k_cache, args.k_scale),
          .v_cache = PagesOf(args.v_cache, args.v_scale),
          .positions = args.positions.as<const int32_t>(),
          .inv_freq = args.inv_freq.as<const float>(),
          .slots = args.slots.as<const int64_t>(),
          .slot_limit = SlotsOf(args.k_cache),
          .tokens = static_cast<int32_t>(args.q.dim(0)),
          .q_heads = static_cast<int32_t>(args.q.dim(1)),
          .kv_heads = static_cast<int32_t>(args.k.dim(1)),
          .dim = static_cast<int32_t>(args.q.dim(2)),
          .page_tokens = static_cast<int32_t>(args.k_cache.dim(2))};
}

absl::Status RopeAppend(const OpContext& ctx, const RopeAppendArgs& args) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() / 4;
  int64_t tokens = kUnbound, q_heads = kUnbound, kv_heads = kUnbound, dim = kUnbound;
  int64_t pages = kUnbound, page_tokens = kUnbound;
  int64_t half = args.q.rank == 3 ? args.q.dim(2) / 2 : kUnbound;
  ShapeChecker checker("RopeAppend", ctx.device.type());
  checker.Bind("q", args.q, {&tokens, &q_heads, &dim}, {DType::kF32, DType::kBF16})
      .Bind("k", args.k, {&tokens, &kv_heads, &dim}, {args.q.dtype})
      .Bind("v", args.v, {&tokens, &kv_heads, &dim}, {args.q.dtype})
      .Bind("positions", args.positions, {&tokens}, {DType::kI32})
      .Bind("inv_freq", args.inv_freq, {&half}, {DType::kF32})
      .Bind("slots", args.slots, {&tokens}, {DType::kI64})
      .Bind("k_cache", args.k_cache, {&pages, &kv_heads, &page_tokens, &dim},
            {DType::kF32, DType::kBF16, DType::kU8})
      .Bind("v_cache", args.v_cache, {&pages, &kv_heads, &page_tokens, &dim}, {args.k_cache.dtype})
      .Require(dim % 2 == 0 && dim <= kMaxRopeDim, "q.dim(2) must be even and at most 512")
      .Require(std::max({tokens, q_heads, kv_heads, page_tokens}) <= kMax,
               "a size of more than 2^29");
  RETURN_IF_ERROR(
      BindCacheScales({args.k_cache, args.k_scale, args.v_scale}, kv_heads, checker).status());
  if (args.q.empty() && args.k.empty()) return absl::OkStatus();
  return RunOnDevice(kRopeAppend, ctx, args);
}

}  // namespace millrace
