#include <algorithm>
#include <cstring>

#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv_append/kv_append_impl.h"
#include "kernels/kv_append/slots.h"
#include "kernels/simd/e4m3.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 16384;

#include "kernels/kv_append/copy_row_cpu.h"

constexpr int kLanes = 4;  // of the baseline: memory is slower

// One of the two tensors and its cache.
struct Rows {
  const TensorView& from;
  const TensorView& cache;
  const TensorView& scale;
};

// Tokens [begin, end).
template <typename From, typename To>
void AppendTokens(const Rows& rows, const int64_t* slots, int64_t begin, int64_t end) {
  const auto& [from, cache, scale] = rows;
  const int64_t page_tokens = cache.dim(2);
  for (int64_t t = begin; t < end; ++t) {
    if (slots[t] < 0) continue;
    const From* row = from.as<const From>() + t * from.stride(0);
    To* slot = cache.as<To>() + slots[t] / page_tokens * cache.stride(0) +
               slots[t] % page_tokens * cache.stride(2);
    for (int64_t n = 0; n < from.dim(1); ++n) {
      AppendRow<kLanes>(row + n * from.stride(1), slot + n * cache.stride(1), from.dim(2),
                        InverseScale<To>(scale.as<const float>(), n));
    }
  }
}

using AppendFn = void (*)(const Rows&, const int64_t*, int64_t, int64_t);

template <typename From>
AppendFn SelectTo(DType to) {
  if (to == DType::kU8) return AppendTokens<From, E4M3>;
  return to == DType::kF32 ? AppendTokens<From, float> : AppendTokens<From, BFloat16>;
}

AppendFn Select(DType from, DType to) {
  return from == DType::kF32 ? SelectTo<float>(to) : SelectTo<BFloat16>(to);
}

}  // namespace

absl::Status KvAppendCpu(const OpContext& ctx, const KvAppendArgs& args) {
  RETURN_IF_ERROR(CheckSlots("KvAppend", args.slots, args.k_cache));
  const int64_t* slots = args.slots.as<const int64_t>();
  const AppendFn append = Select(args.k.dtype, args.k_cache.dtype);
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerTask / (2 * args.k.dim(1) * args.k.dim(2)));
  ctx.device.thread_pool()->ParallelFor(
      args.slots.dim(0), grain, [&](int64_t begin, int64_t end, int) {
        append({args.k, args.k_cache, args.k_scale}, slots, begin, end);
        append({args.v, args.v_cache, args.v_scale}, slots, begin, end);
      });
  return absl::OkStatus();
}

}  // namespace millrace
