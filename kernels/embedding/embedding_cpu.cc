#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/thread_pool.h"
#include "kernels/embedding/embedding_impl.h"

namespace millrace {
namespace {

// Elements that are worth another thread.
constexpr int64_t kElementsPerTask = 32768;

template <typename From, typename To>
void CopyRow(const From* from, int64_t width, To* to) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(width) * sizeof(To));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    for (int64_t i = 0; i < width; ++i) to[i] = ToFloat(from[i]);
  } else {
    for (int64_t i = 0; i < width; ++i) to[i] = ToBFloat16(from[i]);
  }
}

template <typename From, typename To>
void CopyRows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.out.dim(1);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = args.ids.as<int32_t>()[t] - args.vocab_begin;
    To* to = args.out.as<To>() + t * args.out.stride(0);
    if (row < 0 || row >= args.table.dim(0)) {
      std::memset(static_cast<void*>(to), 0, static_cast<size_t>(width) * sizeof(To));
    } else {
      CopyRow(args.table.as<From>() + row * args.table.stride(0), width, to);
    }
  }
}

}  // namespace

absl::Status EmbeddingCpu(const OpContext& ctx, const EmbeddingArgs& args) {
  const bool to_f32 = args.out.dtype == DType::kF32;
  auto copy = args.table.dtype == DType::kF32
                  ? (to_f32 ? CopyRows<float, float> : CopyRows<float, BFloat16>)
                  : (to_f32 ? CopyRows<BFloat16, float> : CopyRows<BFloat16, BFloat16>);
  const int64_t grain = std::max<int64_t>(1, kElementsPerTask / args.out.dim(1));
  ctx.device.thread_pool()->ParallelFor(
      args.out.dim(0), grain, [&](int64_t begin, int64_t end, int) { copy(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
