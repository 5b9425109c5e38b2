#include "engine/cache/kv_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 256;  // of each store, as of a device's own allocations

int64_t Rounded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t StoreBytes(const RowStore& store, const KvCache::Size& size) {
  return Rounded(store.bytes_per_page(size.page_tokens) * size.num_pages);
}

int64_t StoreBytes(const SlotStore& store, const KvCache::Size& size) {
  return Rounded(store.bytes_per_slot() * size.num_slots);
}

template <typename Layers>
int64_t TotalBytes(const Layers& layers, const KvCache::Size& size) {
  int64_t total = 0;
  for (const auto& layer : layers) {
    for (const auto& store : layer) total += StoreBytes(store, size);
  }
  return total;
}

}  // namespace

absl::StatusOr<KvCache> KvCache::Allocate(const CacheSpec& spec, const Size& size, Device& device) {
  RETURN_IF_ERROR(spec.Validate(size.page_tokens));
  if (size.num_pages < 1 || size.num_slots < 0) {
    return absl::InvalidArgumentError(absl::StrCat("KV cache: num_pages = ", size.num_pages,
                                                   ", num_slots = ", size.num_slots,
                                                   ", want >= 1 and >= 0"));
  }
  KvCache cache;
  cache.size_ = size;
  ASSIGN_OR_RETURN(cache.memory_, device.Allocate(TotalBytes(spec.layers, size) +
                                                  TotalBytes(spec.slot_layers, size)));
  char* next = static_cast<char*>(cache.memory_.data());
  for (const LayerCacheSpec& layer : spec.layers) {
    std::vector<TensorView>& views = cache.stores_.emplace_back();
    for (const RowStore& store : layer) {
      views.push_back(TensorView::Of(
          next, store.dtype,
          {size.num_pages, store.heads, size.page_tokens / store.tokens_per_row, store.width},
          device.type()));
      next += StoreBytes(store, size);
    }
  }
  for (const std::vector<SlotStore>& layer : spec.slot_layers) {
    std::vector<TensorView>& views = cache.slot_stores_.emplace_back();
    for (const SlotStore& store : layer) {
      views.push_back(TensorView::Of(next, store.dtype, {size.num_slots, store.rows, store.width},
                                     device.type()));
      next += StoreBytes(store, size);
    }
  }
  return cache;
}

}  // namespace millrace
