// Slots of a paged cache, for kv_append and rope_append: page * page_tokens + offset, or -1.
#ifndef KERNELS_KV_APPEND_SLOTS_H_
#define KERNELS_KV_APPEND_SLOTS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/tensor_view.h"

namespace millrace {

// Slots in a cache of [pages, N, page_tokens, D].
inline int64_t SlotsOf(const TensorView& cache) { return cache.dim(0) * cache.dim(2); }

// InvalidArgument, naming `op`, for the first of the slots that is outside the cache. Host memory.
inline absl::Status CheckSlots(std::string_view op, const TensorView& slots,
                               const TensorView& cache) {
  const int64_t limit = SlotsOf(cache);
  for (int64_t t = 0; t < slots.dim(0); ++t) {
    const int64_t slot = slots.as<const int64_t>()[t];
    if (slot < -1 || slot >= limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(op), ": slots[", t, "] = ", slot, ", want -1 to ", limit - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace

#endif  // KERNELS_KV_APPEND_SLOTS_H_
