#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/paged_attention/paged_attention.h"

namespace millrace {
namespace {

void ExpectNoPlan(PagedAttentionShape shape, std::vector<int32_t> q_start,
                  std::vector<int32_t> kv_len, const std::string& message) {
  PagedAttentionPlan plan;
  const absl::Status status = PlanPagedAttention(shape, {}, q_start, kv_len, plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), "PlanPagedAttention: " + message);
}

TEST(PlanPagedAttentionTest, RefusesBadShapesAndLengths) {
  ExpectNoPlan({3, 2, 64}, {0}, {}, "q_heads = 3, want a multiple of kv_heads = 2");
  ExpectNoPlan({4, 0, 64}, {0}, {}, "q_heads = 4, want a multiple of kv_heads = 0");
  ExpectNoPlan({65, 1, 64}, {0}, {}, "65 query heads over 1 kv heads, want at most 64 on each");
  ExpectNoPlan({4, 2, 20}, {0}, {}, "head_dim = 20, want a multiple of 8 up to 256");
  ExpectNoPlan({4, 2, 264}, {0}, {}, "head_dim = 264, want a multiple of 8 up to 256");
  ExpectNoPlan({4, 2, 64}, {0, 1}, {}, "q_start has 2 elements, want 1");
  ExpectNoPlan({4, 2, 64}, {1, 2}, {3}, "q_start[0] = 1, want 0");
  ExpectNoPlan({4, 2, 64}, {0, 2, 1}, {3, 3}, "q_start[2] = 1, below the one before");
  ExpectNoPlan({4, 2, 64}, {0, 2}, {1}, "sequence 0 has 2 queries and kv_len 1, which counts them");
}

// Every query meets every key it sees exactly once; splits begin at block borders.
TEST(PlanPagedAttentionTest, ItemsCoverTheWorkOnce) {
  const PagedAttentionShape shape{6, 2, 64};
  const std::vector<int32_t> starts = {0, 1, 1, 301, 305, 306}, lengths = {4999, 50, 300, 2000, 1};
  PagedAttentionPlan plan;
  ASSERT_TRUE(PlanPagedAttention(shape, {}, starts, lengths, plan).ok());
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int32_t queries = starts[b + 1] - starts[b];
    for (int32_t t = 0; t < queries; ++t) {
      std::vector<int> met(static_cast<size_t>(lengths[b]));
      for (const PagedAttentionItem& item : plan.items) {
        EXPECT_EQ(item.kv_begin % 64, 0);
        if (item.sequence != static_cast<int32_t>(b) || t < item.q_begin || t >= item.q_end)
          continue;
        for (int32_t j = item.kv_begin; j < item.kv_end; ++j) ++met[static_cast<size_t>(j)];
      }
      for (int32_t j = 0; j <= lengths[b] - queries + t; ++j)
        ASSERT_EQ(met[static_cast<size_t>(j)], 1);
    }
  }
  EXPECT_EQ(plan.joins.size(), 2u);
  EXPECT_TRUE(
      std::is_sorted(plan.items.begin(), plan.items.end(), [](const auto& a, const auto& b) {
        return int64_t{a.q_end - a.q_begin + 1} * (a.kv_end - a.kv_begin) >
               int64_t{b.q_end - b.q_begin + 1} * (b.kv_end - b.kv_begin);
      }));
}

constexpr PagedAttentionTarget kH200 = {
    .device = DeviceType::kCuda, .multiprocessors = 132, .compute_capability = 90};

// How often each query meets each key that it may see, over the parts of its tiles.
void ExpectCoveredOnce(const PagedAttentionPlan& plan) {
  for (size_t b = 0; b < plan.kv_len.size(); ++b) {
    for (int32_t token = plan.q_start[b]; token < plan.q_start[b + 1]; ++token) {
      const int32_t seen = plan.kv_len[b] - plan.q_start[b + 1] + token + 1;
      std::vector<int> met(static_cast<size_t>(plan.kv_len[b]));
      for (const auto* items : {&plan.decode, &plan.prefill}) {
        for (const PagedAttentionWork& w : *items) {
          if (token < w.token || token >= w.token + w.queries) continue;
          EXPECT_EQ(w.sequence, static_cast<int32_t>(b));
          EXPECT_EQ(w.visible + token - w.token, seen);
          EXPECT_EQ(w.settled, plan.kv_len[b] - (plan.q_start[b + 1] - plan.q_start[b]));
          for (int32_t j = w.kv_begin; j < std::min(w.kv_end, seen); ++j)
            ++met[static_cast<size_t>(j)];
        }
      }
      for (int32_t j = 0; j < seen; ++j) ASSERT_EQ(met[static_cast<size_t>(j)], 1);
    }
  }
}

// The parts of a tile have neighbouring slots that no other tile has, within the layout.
void ExpectSlotsApart(const PagedAttentionPlan& plan,
                      const std::vector<PagedAttentionWork>& items) {
  std::vector<int> taken(static_cast<size_t>(plan.layout.slots));
  for (const PagedAttentionWork& w : items) {
    EXPECT_LT(w.part, w.parts);
    EXPECT_EQ(w.kv_begin % 16, 0);
    EXPECT_LT(w.kv_begin, w.kv_end);
    if (w.parts == 1) continue;
    ASSERT_LT(w.slot + w.part, plan.layout.slots);
    EXPECT_EQ(++taken[static_cast<size_t>(w.slot + w.part)], 1);
  }
}

TEST(PlanPagedAttentionTest, DeviceWorkCoversTheStepOnce) {
  const std::vector<std::vector<int32_t>> queries = {
      {1}, {1, 1, 1}, {1, 0, 1}, {4, 4}, {16, 1, 3}, {300, 1, 17, 2, 0}, {1}};
  const std::vector<std::vector<int32_t>> keys = {
      {40000}, {1, 17, 4096}, {700, 0, 1}, {5000, 4}, {900, 2, 3}, {301, 5000, 99, 2, 8}, {2048}};
  for (const PagedAttentionShape shape :
       {PagedAttentionShape{32, 8, 128}, {64, 8, 128}, {3, 3, 64}, {64, 1, 16}, {4, 1, 256}}) {
    for (size_t i = 0; i < queries.size(); ++i) {
      SCOPED_TRACE(i);
      std::vector<int32_t> starts = {0};
      for (const int32_t n : queries[i]) starts.push_back(starts.back() + n);
      PagedAttentionPlan plan;
      ASSERT_TRUE(PlanPagedAttention(shape, kH200, starts, keys[i], plan).ok());
      ExpectCoveredOnce(plan);
      ExpectSlotsApart(plan, plan.decode);
      ExpectSlotsApart(plan, plan.prefill);
      EXPECT_LE(static_cast<int32_t>(plan.decode.size()), plan.layout.decode_items);
      EXPECT_LE(plan.layout.bytes,
                PagedAttentionPlanBytes(kH200, shape, static_cast<int64_t>(keys[i].size()),
                                        starts.back()));
    }
  }
}

// One long sequence among many short ones is spread too.
TEST(PlanPagedAttentionTest, DeviceWorkIsEven) {
  std::vector<int32_t> starts = {0}, keys;
  for (int32_t b = 0; b < 64; ++b) {
    starts.push_back(b + 1);
    keys.push_back(b == 9 ? 100000 : 300);
  }
  PagedAttentionPlan plan;
  ASSERT_TRUE(PlanPagedAttention({32, 8, 128}, kH200, starts, keys, plan).ok());
  const int64_t total = (100000 + 63 * 300) * 8;
  EXPECT_LE(int64_t{plan.decode[0].kv_end} - plan.decode[0].kv_begin, total / (132 * 3));
}

// What a captured graph relies on.
TEST(PlanPagedAttentionTest, LayoutOfDecodeDoesNotDependOnLengths) {
  PagedAttentionPlan a, b;
  ASSERT_TRUE(PlanPagedAttention({32, 8, 128}, kH200, {0, 1, 2, 3}, {1, 1, 1}, a).ok());
  ASSERT_TRUE(PlanPagedAttention({32, 8, 128}, kH200, {0, 1, 2, 2}, {9000, 70000, 0}, b).ok());
  EXPECT_EQ(a.layout.decode, b.layout.decode);
  EXPECT_EQ(a.layout.decode_items, b.layout.decode_items);
  EXPECT_EQ(a.layout.bytes, b.layout.bytes);
}

// Blocks that have a multiprocessor each do not wait for one another, whatever the lengths.
TEST(PlanPagedAttentionTest, FewSequencesAreOneWave) {
  const std::vector<int32_t> keys[] = {
      {32768}, {1}, {131072, 17}, {900, 5, 40000, 2000, 1, 1, 333, 4096}};
  for (const std::vector<int32_t>& lengths : keys) {
    std::vector<int32_t> starts = {0};
    for (size_t b = 0; b < lengths.size(); ++b) starts.push_back(static_cast<int32_t>(b) + 1);
    PagedAttentionPlan plan;
    ASSERT_TRUE(PlanPagedAttention({32, 8, 128}, kH200, starts, lengths, plan).ok());
    EXPECT_EQ(plan.layout.decode_items, 132 / 8);
    EXPECT_LE(plan.decode.size(), size_t{132 / 8});
    ExpectCoveredOnce(plan);
    ExpectSlotsApart(plan, plan.decode);
  }
}

// Every query of the sequences that are not decoded lies in one tile of sm_90's kernel.
TEST(PlanPagedAttentionTest, HopperTilesCoverPrefillOnce) {
  const PagedAttentionShape shape{32, 8, 128};
  const std::vector<int32_t> starts = {0, 100, 101, 118, 1118}, keys = {100, 50, 400, 5000};
  PagedAttentionPlan plan;
  ASSERT_TRUE(PlanPagedAttention(shape, kH200, starts, keys, plan).ok());
  std::vector<int> met(1118);
  for (const PagedPrefillTile& tile : plan.hopper) {
    const size_t b = static_cast<size_t>(tile.sequence);
    const int32_t end = std::min(tile.first_query + 32, starts[b + 1] - starts[b]);
    for (int32_t t = tile.first_query; t < end; ++t) ++met[static_cast<size_t>(starts[b] + t)];
  }
  for (size_t t = 0; t < met.size(); ++t) EXPECT_EQ(met[t], t == 100 ? 0 : 1) << t;
  EXPECT_EQ(plan.hopper[0].sequence, 3);
  EXPECT_EQ(plan.hopper[0].first_query, 992);
}

}  // namespace
}  // namespace millrace
