#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/latent_append/latent_append_impl.h"
#include "kernels/latent_cache/latent_row.h"

namespace millrace {
namespace {

// Elements that are worth another thread: some microseconds of work, more where rows become FP8.
constexpr int64_t kElementsPerTask = 16384;

absl::Status CheckSlots(const LatentAppendArgs& args) {
  const int64_t limit = args.store.dim(0) * args.store.dim(2);
  for (int64_t t = 0; t < args.slots.dim(0); ++t) {
    const int64_t slot = args.slots.as<int64_t>()[t];
    if (slot >= -1 && slot < limit) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("LatentAppend: slots[", t, "] = ", slot, ", want -1 to ", limit - 1));
  }
  return absl::OkStatus();
}

template <typename From>
void AppendTokens(const LatentAppendArgs& args, int64_t begin, int64_t end) {
  const int64_t page_tokens = args.store.dim(2);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t slot = args.slots.as<int64_t>()[t];
    if (slot < 0) continue;
    WriteLatentRow(args.rows.as<From>() + t * args.rows.stride(0), args.rows.dim(1), args.store,
                   slot / page_tokens, slot % page_tokens);
  }
}

}  // namespace

absl::Status LatentAppendCpu(const OpContext& ctx, const LatentAppendArgs& args) {
  RETURN_IF_ERROR(CheckSlots(args));
  const auto append = args.rows.dtype == DType::kF32 ? AppendTokens<float> : AppendTokens<BFloat16>;
  ctx.device.thread_pool()->ParallelFor(
      args.rows.dim(0), std::max<int64_t>(1, kElementsPerTask / args.rows.dim(1)),
      [&](int64_t begin, int64_t end, int) { append(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace millrace
