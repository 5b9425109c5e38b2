#include "engine/cache/page_pool.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"

namespace millrace {

PagePool::PagePool(int32_t num_pages, std::function<void(PageId)> on_evict)
    : pages_(static_cast<size_t>(num_pages)), on_evict_(std::move(on_evict)) {
  free_.reserve(pages_.size());
  for (PageId p = num_pages - 1; p >= 0; --p) free_.push_back(p);
}

PagePool::Page& PagePool::At(PageId page) {
  MR_CHECK(page >= 0 && page < total());
  return pages_[static_cast<size_t>(page)];
}

absl::StatusOr<std::vector<PageId>> PagePool::Allocate(int32_t count) {
  MR_CHECK_GE(count, 0);
  if (count > available()) {
    return absl::ResourceExhaustedError(absl::StrCat("PagePool: ", count, " pages asked for, ",
                                                     available(), " of ", total(), " available"));
  }
  std::vector<PageId> out;
  out.reserve(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    if (free_.empty()) {
      const PageId victim = lru_.front();
      lru_.pop_front();
      At(victim).published = false;
      on_evict_(victim);
      free_.push_back(victim);
    }
    out.push_back(free_.back());
    free_.pop_back();
    At(out.back()).references = 1;
    ++used_;
  }
  return out;
}

void PagePool::Retain(PageId page) {
  Page& p = At(page);
  if (p.references == 0) {
    MR_CHECK(p.published);
    lru_.erase(p.in_lru);
    ++used_;
  }
  ++p.references;
}

void PagePool::Release(absl::Span<const PageId> pages) {
  for (PageId page : pages) {
    Page& p = At(page);
    MR_CHECK_GT(p.references, 0);
    if (--p.references > 0) continue;
    --used_;
    if (p.published) {
      p.in_lru = lru_.insert(lru_.end(), page);
    } else {
      free_.push_back(page);
    }
  }
}

void PagePool::SetPublished(PageId page, bool published) {
  Page& p = At(page);
  if (p.published == published) return;
  MR_CHECK(!published || p.references > 0);
  p.published = published;
  if (!published && p.references == 0) {
    lru_.erase(p.in_lru);
    free_.push_back(page);
  }
}

}  // namespace millrace
