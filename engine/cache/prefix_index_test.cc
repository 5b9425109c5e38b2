#include "engine/cache/prefix_index.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

std::vector<PageKey> Chain(std::string_view salt, std::vector<std::vector<int32_t>> pages) {
  std::vector<PageKey> keys;
  PageKey key = RootKey(salt);
  for (const auto& page : pages) keys.push_back(key = ChildKey(key, page));
  return keys;
}

TEST(PrefixIndex, MatchesTheLongestKnownRun) {
  PrefixIndex index;
  const auto keys = Chain("", {{1, 2}, {3, 4}, {5, 6}});
  EXPECT_TRUE(index.Match(keys).empty());
  EXPECT_TRUE(index.Publish(keys[0], 7));
  EXPECT_TRUE(index.Publish(keys[2], 9));  // its parent is unknown: not reachable
  EXPECT_EQ(index.Match(keys), (std::vector<PageId>{7}));
  EXPECT_TRUE(index.Publish(keys[1], 8));
  EXPECT_EQ(index.Match(keys), (std::vector<PageId>{7, 8, 9}));
  index.Forget(8);
  index.Forget(8);
  EXPECT_EQ(index.Match(keys), (std::vector<PageId>{7}));
  EXPECT_EQ(index.Pages().size(), 2u);
}

TEST(PrefixIndex, KeyDependsOnEverythingBeforeAndOnTheSalt) {
  const auto base = Chain("", {{1, 2}, {3, 4}});
  EXPECT_NE(Chain("", {{1, 9}, {3, 4}})[1], base[1]);
  EXPECT_NE(Chain("", {{1, 2}, {3, 9}})[1], base[1]);
  EXPECT_NE(Chain("tenant", {{1, 2}, {3, 4}})[1], base[1]);
  EXPECT_EQ(Chain("", {{1, 2}, {3, 4}})[1], base[1]);
}

TEST(PrefixIndex, KeepsTheFirstOfTwoCopies) {
  PrefixIndex index;
  const auto keys = Chain("", {{1}});
  EXPECT_TRUE(index.Publish(keys[0], 1));
  EXPECT_FALSE(index.Publish(keys[0], 2));
  EXPECT_EQ(index.Match(keys), (std::vector<PageId>{1}));
  index.Forget(2);  // was never published
  EXPECT_EQ(index.Match(keys), (std::vector<PageId>{1}));
}

}  // namespace
}  // namespace millrace
