#include "engine/cache/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace {

void ExpectCounts(const PagePool& pool, int free, int used, int cached) {
  EXPECT_EQ(pool.free(), free);
  EXPECT_EQ(pool.used(), used);
  EXPECT_EQ(pool.cached(), cached);
  EXPECT_EQ(pool.free() + pool.used() + pool.cached(), pool.total());
}

TEST(PagePool, AllocatesDistinctPagesOrNone) {
  PagePool pool(3, [](PageId) { FAIL() << "nothing is cached"; });
  const auto two = pool.Allocate(2);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(std::set<PageId>(two->begin(), two->end()).size(), 2u);
  const auto more = pool.Allocate(2);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(more.status().message().find("2 pages asked for, 1 of 3"), std::string::npos);
  ExpectCounts(pool, 1, 2, 0);
  pool.Release(*two);
  ExpectCounts(pool, 3, 0, 0);
  EXPECT_TRUE(pool.Allocate(0)->empty());
}

TEST(PagePool, SharedPageIsUsedUntilItsLastRelease) {
  PagePool pool(2, [](PageId) {});
  const std::vector<PageId> page = *pool.Allocate(1);
  pool.Retain(page[0]);
  pool.Release(page);
  ExpectCounts(pool, 1, 1, 0);
  pool.Release(page);
  ExpectCounts(pool, 2, 0, 0);
}

TEST(PagePool, PublishedPagesAreCachedAndEvictedLeastRecentlyUsedFirst) {
  std::vector<PageId> evicted;
  PagePool pool(3, [&](PageId page) { evicted.push_back(page); });
  const std::vector<PageId> pages = *pool.Allocate(3);
  for (PageId page : pages) pool.SetPublished(page, true);
  pool.Release({pages[1], pages[0], pages[2]});
  ExpectCounts(pool, 0, 0, 3);
  pool.Retain(pages[1]);  // a hit: used again, and later the most recent
  pool.Release({pages[1]});
  const auto again = pool.Allocate(2);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(evicted, (std::vector<PageId>{pages[0], pages[2]}));
  ExpectCounts(pool, 0, 2, 1);
  pool.Release(*again);  // their content is gone: free, not cached
  ExpectCounts(pool, 2, 0, 1);
}

TEST(PagePool, UnpublishingACachedPageFreesIt) {
  PagePool pool(1, [](PageId) { FAIL(); });
  const std::vector<PageId> page = *pool.Allocate(1);
  pool.SetPublished(page[0], true);
  pool.Release(page);
  pool.SetPublished(page[0], false);
  ExpectCounts(pool, 1, 0, 0);
}

TEST(PagePoolDeathTest, ReleasingAFreePageIsOurBug) {
  PagePool pool(1, [](PageId) {});
  EXPECT_DEATH(pool.Release({0}), "CHECK failed");
  EXPECT_DEATH(pool.Retain(0), "CHECK failed");
  EXPECT_DEATH(pool.Retain(1), "CHECK failed");
}

}  // namespace
}  // namespace millrace
