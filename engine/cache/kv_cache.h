// The cache memory of one rank.
#ifndef ENGINE_CACHE_KV_CACHE_H_
#define ENGINE_CACHE_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/cache_spec.h"
#include "kernels/core/device.h"

namespace millrace {

// Owns the row and slot stores of all layers, zero-filled at the start. Worker thread. The device
// must outlive it.
class KvCache final {
 public:
  struct Size {
    int32_t page_tokens = 0;
    int32_t num_pages = 0;
    int32_t num_slots = 0;  // sequences at once
  };

  // InvalidArgument for a spec that does not fit page_tokens, num_pages < 1 or num_slots < 0;
  // ResourceExhausted when the device has no room.
  static absl::StatusOr<KvCache> Allocate(const CacheSpec& spec, const Size& size, Device& device);

  int32_t page_tokens() const { return size_.page_tokens; }
  int32_t num_pages() const { return size_.num_pages; }
  int64_t bytes() const { return memory_.bytes(); }

  // [num_pages, heads, page_tokens / tokens_per_row, width]. REQUIRES: both indices in the spec.
  const TensorView& store(int32_t layer, int index) const {
    return stores_[static_cast<size_t>(layer)][static_cast<size_t>(index)];
  }
  // [num_slots, rows, width]. REQUIRES: as above.
  const TensorView& slot_store(int32_t layer, int index) const {
    return slot_stores_[static_cast<size_t>(layer)][static_cast<size_t>(index)];
  }

 private:
  KvCache() = default;

  Size size_;
  Buffer memory_;
  std::vector<std::vector<TensorView>> stores_;
  std::vector<std::vector<TensorView>> slot_stores_;
};

}  // namespace millrace

#endif  // ENGINE_CACHE_KV_CACHE_H_
