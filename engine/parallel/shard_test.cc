#include "engine/parallel/shard.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(BalancedRangeTest, EveryElementOnceAndSizesDifferByOneAtMost) {
  for (int32_t parts = 1; parts <= 16; ++parts) {
    for (int64_t n : {0, 1, 2, 7, 16, 17, 1536, 49152, 128257}) {
      int64_t next = 0;
      for (int32_t r = 0; r < parts; ++r) {
        const Range range = BalancedRange(n, parts, r);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), n / parts);
        EXPECT_LE(range.size(), (n + parts - 1) / parts);
        next = range.end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

TEST(BalancedOwnerTest, AgreesWithTheRanges) {
  for (int32_t parts = 1; parts <= 16; ++parts) {
    for (int64_t n : {1, 5, 16, 33, 100}) {
      for (int64_t i = 0; i < n; ++i) {
        const Range range = BalancedRange(n, parts, BalancedOwner(n, parts, i));
        EXPECT_TRUE(range.begin <= i && i < range.end) << n << " " << parts << " " << i;
      }
    }
  }
}

TEST(ShardHeadsTest, NineOverThreeOnTwoRanks) {
  const HeadShard a = *ShardHeads(9, 3, 2, 0);
  const HeadShard b = *ShardHeads(9, 3, 2, 1);
  EXPECT_EQ(a.kv, (Range{0, 2}));
  EXPECT_EQ(a.q, (Range{0, 6}));
  EXPECT_EQ(b.kv, (Range{2, 3}));
  EXPECT_EQ(b.q, (Range{6, 9}));
}

TEST(ShardHeadsTest, KvHeadsAreCopiedWhenThereAreMoreRanks) {
  const HeadShard last = *ShardHeads(8, 2, 4, 3);
  EXPECT_EQ(last.kv, (Range{1, 2}));
  EXPECT_EQ(last.q, (Range{6, 8}));
}

// For all ranks up to 16: each query head on one rank, next to its own KV head, local grouping
// uniform; each KV head somewhere, and on exactly one rank unless there are fewer than ranks.
TEST(ShardHeadsTest, EveryHeadOnce) {
  for (int64_t kv_heads : {1, 2, 3, 4, 8, 12, 16, 32}) {
    for (int64_t group : {1, 2, 3, 4, 5, 8, 16}) {
      for (int32_t tp = 1; tp <= 16; ++tp) {
        const int64_t q_heads = kv_heads * group;
        const bool fits = tp <= kv_heads || (tp + kv_heads - 1) / kv_heads <= group;
        std::vector<int> q_seen(q_heads, 0);
        std::vector<int> kv_seen(kv_heads, 0);
        for (int32_t r = 0; r < tp; ++r) {
          const absl::StatusOr<HeadShard> shard = ShardHeads(q_heads, kv_heads, tp, r);
          ASSERT_EQ(shard.ok(), fits) << q_heads << "/" << kv_heads << " tp " << tp;
          if (!fits) continue;
          ASSERT_GT(shard->q.size(), 0);
          ASSERT_GT(shard->kv.size(), 0);
          ASSERT_EQ(shard->q.size() % shard->kv.size(), 0);
          const int64_t local_group = shard->q.size() / shard->kv.size();
          for (int64_t i = 0; i < shard->q.size(); ++i) {
            ++q_seen[shard->q.begin + i];
            EXPECT_EQ((shard->q.begin + i) / group, shard->kv.begin + i / local_group);
          }
          for (int64_t k = shard->kv.begin; k < shard->kv.end; ++k) ++kv_seen[k];
        }
        if (!fits) continue;
        for (int seen : q_seen) EXPECT_EQ(seen, 1);
        for (int seen : kv_seen) {
          EXPECT_GE(seen, 1);
          if (tp <= kv_heads) {
            EXPECT_EQ(seen, 1);
          }
        }
      }
    }
  }
}

TEST(ShardHeadsTest, RefusesWithTheReason) {
  EXPECT_NE(std::string(ShardHeads(9, 2, 1, 0).status().message()).find("9 query heads over 2"),
            std::string::npos);
  EXPECT_NE(std::string(ShardHeads(9, 3, 10, 0).status().message()).find("at most 9 ranks"),
            std::string::npos);
  EXPECT_FALSE(ShardHeads(0, 0, 1, 0).ok());
}

}  // namespace
}  // namespace millrace
