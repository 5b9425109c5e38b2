#include "engine/cache/kv_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/status.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 256;  // of each store, as of a device's own allocations

int64_t StoreBytes(const RowStore& store, int32_t page_tokens, int32_t num_pages) {
  const int64_t bytes = store.bytes_per_page(page_tokens) * num_pages;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

absl::StatusOr<KvCache> KvCache::Allocate(const CacheSpec& spec, int32_t page_tokens,
                                          int32_t num_pages, Device& device) {
  RETURN_IF_ERROR(spec.Validate(page_tokens));
  if (num_pages < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("KV cache: num_pages = ", num_pages, ", want >= 1"));
  }
  int64_t total = 0;
  for (const LayerCacheSpec& layer : spec.layers) {
    for (const RowStore& store : layer) total += StoreBytes(store, page_tokens, num_pages);
  }
  KvCache cache;
  cache.page_tokens_ = page_tokens;
  cache.num_pages_ = num_pages;
  ASSIGN_OR_RETURN(cache.memory_, device.Allocate(total));
  char* next = static_cast<char*>(cache.memory_.data());
  for (const LayerCacheSpec& layer : spec.layers) {
    std::vector<TensorView>& views = cache.stores_.emplace_back();
    for (const RowStore& store : layer) {
      views.push_back(
          TensorView::Of(next, store.dtype,
                         {num_pages, store.heads, page_tokens / store.tokens_per_row, store.width},
                         device.type()));
      next += StoreBytes(store, page_tokens, num_pages);
    }
  }
  return cache;
}

}  // namespace millrace
