#include "engine/cache/cache_spec.h"

#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"

namespace millrace {

int64_t CacheSpec::bytes_per_page(int32_t page_tokens) const {
  int64_t bytes = 0;
  for (const LayerCacheSpec& layer : layers) {
    for (const RowStore& store : layer) bytes += store.bytes_per_page(page_tokens);
  }
  return bytes;
}

int64_t CacheSpec::bytes_per_slot() const {
  int64_t bytes = 0;
  for (const std::vector<SlotStore>& layer : slot_layers) {
    for (const SlotStore& store : layer) bytes += store.bytes_per_slot();
  }
  return bytes;
}

absl::Status CacheSpec::Validate(int32_t page_tokens) const {
  if (page_tokens < 1) {
    return absl::InvalidArgumentError(absl::StrCat("page_tokens = ", page_tokens, ", want >= 1"));
  }
  int32_t multiple = 1;
  for (const LayerCacheSpec& layer : layers) {
    for (const RowStore& store : layer) multiple = std::lcm(multiple, store.tokens_per_row);
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const RowStore& store : layers[layer]) {
      if (page_tokens % store.tokens_per_row != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("a cache page of ", page_tokens, " tokens (--block-size), but layer ",
                         layer, " stores one ", std::string(store.name), " row for ",
                         store.tokens_per_row, " tokens: give a multiple of ", multiple));
      }
    }
  }
  return absl::OkStatus();
}

LayerCacheSpec KeyValueLayer(int64_t kv_heads, int64_t head_dim, DType dtype) {
  const auto store = [&](std::string_view name) {
    return RowStore{name, /*tokens_per_row=*/1, kv_heads, head_dim, dtype};
  };
  return {store("key"), store("value")};
}

}  // namespace millrace
