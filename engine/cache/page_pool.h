// Hands out cache pages by number. Engine thread only. Never touches device memory.
//
// Every page is in one of three states: free, used (referenced by a sequence), or cached (not
// referenced, but its content is published in the PrefixIndex). Cached pages are given away, least
// recently used first, when the free ones run out. free + used + cached == total, always.
#ifndef ENGINE_CACHE_PAGE_POOL_H_
#define ENGINE_CACHE_PAGE_POOL_H_

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace millrace {

using PageId = int32_t;

class PagePool final {
 public:
  // `on_evict` is told of each cached page that is given away, so that its content is forgotten.
  PagePool(int32_t num_pages, std::function<void(PageId)> on_evict);

  int32_t total() const { return static_cast<int32_t>(pages_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t cached() const { return static_cast<int32_t>(lru_.size()); }
  int32_t used() const { return used_; }
  int32_t available() const { return free() + cached(); }

  // Returns `count` distinct pages with one reference each, or ResourceExhausted and takes none.
  absl::StatusOr<std::vector<PageId>> Allocate(int32_t count);
  // One more reference. REQUIRES: the page is used or cached.
  void Retain(PageId page);
  // One reference less each. REQUIRES: each page is used. A published page becomes cached, in the
  // order given (the first is evicted first); another becomes free.
  void Release(absl::Span<const PageId> pages);
  // Says whether a page's content is worth keeping. REQUIRES: publishing only while used.
  void SetPublished(PageId page, bool published);

 private:
  struct Page {
    int32_t references = 0;
    bool published = false;
    std::list<PageId>::iterator in_lru;  // valid while cached
  };

  Page& At(PageId page);

  std::vector<Page> pages_;
  std::vector<PageId> free_;
  std::list<PageId> lru_;  // cached pages, least recently used first
  int32_t used_ = 0;
  std::function<void(PageId)> on_evict_;
};

}  // namespace millrace

#endif  // ENGINE_CACHE_PAGE_POOL_H_
