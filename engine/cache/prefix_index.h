// Finds pages whose content is already computed. Engine thread only; knows no tensors.
//
// A page is keyed by the SHA-256 of everything its rows depend on: the cache salt, and all token
// ids from the start of the sequence to the page's end (chained page by page). Collisions are as
// unlikely as SHA-256's, so a hit never gives another prompt's rows.
#ifndef ENGINE_CACHE_PREFIX_INDEX_H_
#define ENGINE_CACHE_PREFIX_INDEX_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "engine/cache/page_pool.h"

namespace millrace {

struct PageKey {
  std::array<uint8_t, 32> digest = {};

  friend bool operator==(const PageKey&, const PageKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PageKey& k) {
    return H::combine(std::move(h), k.digest);
  }
};

// The key before a sequence's first page.
PageKey RootKey(std::string_view salt);
// The key of a page that follows `parent` and holds `tokens` (a full page).
PageKey ChildKey(const PageKey& parent, absl::Span<const int32_t> tokens);

class PrefixIndex final {
 public:
  // Remembers that `page` holds `key`. False when the key is already there (the page is then not
  // published: one copy is enough).
  bool Publish(const PageKey& key, PageId page);
  // Forgets a page's content; no-op when it was not published.
  void Forget(PageId page);
  // The pages of the longest known run of `keys` from its start.
  std::vector<PageId> Match(absl::Span<const PageKey> keys) const;
  // All published pages.
  std::vector<PageId> Pages() const;

 private:
  absl::flat_hash_map<PageKey, PageId> page_of_;
  absl::flat_hash_map<PageId, PageKey> key_of_;
};

}  // namespace millrace

#endif  // ENGINE_CACHE_PREFIX_INDEX_H_
