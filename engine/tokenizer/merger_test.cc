#include "engine/tokenizer/merger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace millrace {
namespace {

using Ids = std::vector<int32_t>;
using Rules = std::map<std::pair<int32_t, int32_t>, std::pair<uint32_t, int32_t>>;

// The definition, word for word: the pair of lowest rank, leftmost first, until none is left.
Ids MergeByDefinition(const Rules& rules, Ids ids) {
  for (;;) {
    size_t best = ids.size();
    uint32_t best_rank = ~0u;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule == rules.end() || rule->second.first >= best_rank) continue;
      best = i;
      best_rank = rule->second.first;
    }
    if (best == ids.size()) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<long>(best) + 1);
  }
}

TEST(MergerTest, AgreesWithTheDefinition) {
  std::mt19937 random(5);
  MergerScratch scratch;
  for (int round = 0; round < 1500; ++round) {
    const int32_t alphabet = 1 + static_cast<int32_t>(random() % 4);
    const uint32_t count = random() % 25;
    Rules rules;
    MergeTable table(count);
    for (uint32_t rank = 0; rank < count; ++rank) {
      const int32_t made = alphabet + static_cast<int32_t>(rank);
      const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(made)); };
      const int32_t left = any();
      const int32_t right = any();
      if (!rules.emplace(std::pair(left, right), std::pair(rank, made)).second) continue;
      table.Set(left, right, PackMerge(rank, made));
    }
    // Around the length where scanning gives way to the heap, and well beyond.
    for (const size_t length : {0u, 1u, 2u, 3u, 17u, 47u, 48u, 49u, 50u, 200u}) {
      Ids ids(length);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet));
      const Ids want = MergeByDefinition(rules, ids);
      MergeAll(table, &ids, &scratch);
      ASSERT_EQ(ids, want) << "round " << round << " length " << length;
    }
  }
}

TEST(MergeTableTest, TheLastEntryForAPairStands) {
  MergeTable table(2);
  EXPECT_EQ(table.Find(1, 2), kNoMerge);
  table.Set(1, 2, PackMerge(0, 7));
  table.Set(1, 2, PackMerge(1, 8));
  EXPECT_EQ(MergeResult(table.Find(1, 2)), 8);
  EXPECT_EQ(table.Find(2, 1), kNoMerge);
  EXPECT_EQ(MergeTable().Find(0, 0), kNoMerge);
}

}  // namespace
}  // namespace millrace
