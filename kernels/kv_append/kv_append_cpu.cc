#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kv_append/kv_append_impl.h"
#include "kernels/simd/simd.h"

namespace millrace {
namespace {

// Elements that are worth another thread: about 2 us of work.
constexpr int64_t kElementsPerTask = 16384;

void CopyRow(const float* from, float* to, int64_t dim) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
}
void CopyRow(const BFloat16* from, BFloat16* to, int64_t dim) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(BFloat16));
}
void CopyRow(const float* from, BFloat16* to, int64_t dim) {
  constexpr int kLanes = 4;  // of the baseline: memory is slower
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) simd::Store<kLanes>(to + i, simd::Load<kLanes>(from + i));
  for (; i < dim; ++i) to[i] = ToBFloat16(from[i]);
}
void CopyRow(const BFloat16* from, float* to, int64_t dim) {
  for (int64_t i = 0; i < dim; ++i) to[i] = ToFloat(from[i]);
}

// Tokens [begin, end) of one of the two tensors.
template <typename From, typename To>
void AppendTokens(const TensorView& from, const TensorView& cache, const int64_t* slots,
                  int64_t begin, int64_t end) {
  const int64_t page_tokens = cache.dim(2);
  for (int64_t t = begin; t < end; ++t) {
    if (slots[t] < 0) continue;
    const From* row = from.as<const From>() + t * from.stride(0);
    To* slot = cache.as<To>() + slots[t] / page_tokens * cache.stride(0) +
               slots[t] % page_tokens * cache.stride(2);
    for (int64_t n = 0; n < from.dim(1); ++n) {
      CopyRow(row + n * from.stride(1), slot + n * cache.stride(1), from.dim(2));
    }
  }
}

using AppendFn = void (*)(const TensorView&, const TensorView&, const int64_t*, int64_t, int64_t);

AppendFn Select(DType from, DType to) {
  if (from == DType::kF32) {
    return to == DType::kF32 ? AppendTokens<float, float> : AppendTokens<float, BFloat16>;
  }
  return to == DType::kF32 ? AppendTokens<BFloat16, float> : AppendTokens<BFloat16, BFloat16>;
}

}  // namespace

absl::Status KvAppendCpu(const OpContext& ctx, const KvAppendArgs& args) {
  const int64_t* slots = args.slots.as<const int64_t>();
  const int64_t tokens = args.slots.dim(0);
  const int64_t limit = args.k_cache.dim(0) * args.k_cache.dim(2);
  for (int64_t t = 0; t < tokens; ++t) {
    if (slots[t] < -1 || slots[t] >= limit) {
      return absl::InvalidArgumentError(
          absl::StrCat("KvAppend: slots[", t, "] = ", slots[t], ", want -1 to ", limit - 1));
    }
  }
  const AppendFn append = Select(args.k.dtype, args.k_cache.dtype);
  const int64_t grain =
      std::max<int64_t>(1, kElementsPerTask / (2 * args.k.dim(1) * args.k.dim(2)));
  ctx.device.thread_pool()->ParallelFor(tokens, grain, [&](int64_t begin, int64_t end, int) {
    append(args.k, args.k_cache, slots, begin, end);
    append(args.v, args.v_cache, slots, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace millrace
