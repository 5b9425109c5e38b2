// What a model keeps of the tokens it has seen, layer by layer. A cache page holds page_tokens
// consecutive tokens of one sequence in every layer; what a layer stores for them is a list of row
// stores, so layers of one model may differ: a LLaMA layer has keys and values for each token, a
// layer with compressed attention a row for every few tokens. What belongs to a running sequence
// and to none of its pages lies in slot stores.
#ifndef ENGINE_CACHE_CACHE_SPEC_H_
#define ENGINE_CACHE_CACHE_SPEC_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/core/dtype.h"

namespace millrace {

// One kind of row of one layer, as tensor [pages, heads, page_tokens / tokens_per_row, width].
struct RowStore {
  std::string_view name;       // for messages; static storage
  int32_t tokens_per_row = 1;  // divides page_tokens
  int64_t heads = 1;           // of this rank
  int64_t width = 0;           // elements
  DType dtype = DType::kBF16;

  int64_t bytes_per_page(int32_t page_tokens) const {
    return heads * (page_tokens / tokens_per_row) * width * DTypeBytes(dtype);
  }
};

using LayerCacheSpec = std::vector<RowStore>;

// Rows that a running sequence has, whatever its length, as tensor [slots, rows, width]: what a
// layer needs of the last tokens and no page holds. Never carried over: a layer reads no row that
// the sequence in the slot did not write since it was put there.
struct SlotStore {
  std::string_view name;  // for messages; static storage
  int64_t rows = 0;
  int64_t width = 0;  // elements
  DType dtype = DType::kF32;

  int64_t bytes_per_slot() const { return rows * width * DTypeBytes(dtype); }
};

struct CacheSpec {
  std::vector<LayerCacheSpec> layers;
  // By layer, like `layers`; a layer past the end has none.
  std::vector<std::vector<SlotStore>> slot_layers;

  // Of all layers, this rank.
  int64_t bytes_per_page(int32_t page_tokens) const;
  int64_t bytes_per_slot() const;
  // InvalidArgument naming layer, store and a page_tokens that would do when it is no multiple of a
  // tokens_per_row.
  absl::Status Validate(int32_t page_tokens) const;
};

// Stores of a layer with full attention, in the order that KeyValueLayer gives them.
inline constexpr int kKeyStore = 0;
inline constexpr int kValueStore = 1;

LayerCacheSpec KeyValueLayer(int64_t kv_heads, int64_t head_dim, DType dtype);

}  // namespace millrace

#endif  // ENGINE_CACHE_CACHE_SPEC_H_
