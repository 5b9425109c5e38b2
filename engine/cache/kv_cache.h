// The cache memory of one rank.
#ifndef ENGINE_CACHE_KV_CACHE_H_
#define ENGINE_CACHE_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/cache_spec.h"
#include "kernels/core/device.h"

namespace millrace {

// Owns the row stores of all layers, zero-filled at the start. Worker thread. The device must
// outlive it.
class KvCache final {
 public:
  // InvalidArgument for a spec that does not fit page_tokens or num_pages < 1; ResourceExhausted
  // when the device has no room.
  static absl::StatusOr<KvCache> Allocate(const CacheSpec& spec, int32_t page_tokens,
                                          int32_t num_pages, Device& device);

  int32_t page_tokens() const { return page_tokens_; }
  int32_t num_pages() const { return num_pages_; }
  int64_t bytes() const { return memory_.bytes(); }

  // [num_pages, heads, page_tokens / tokens_per_row, width]. REQUIRES: both indices in the spec.
  const TensorView& store(int32_t layer, int index) const {
    return stores_[static_cast<size_t>(layer)][static_cast<size_t>(index)];
  }

 private:
  KvCache() = default;

  int32_t page_tokens_ = 0;
  int32_t num_pages_ = 0;
  Buffer memory_;
  std::vector<std::vector<TensorView>> stores_;
};

}  // namespace millrace

#endif  // ENGINE_CACHE_KV_CACHE_H_
