#include "kernels/latent_cache/paged_batch_cpu.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/latent_cache/testing.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

constexpr PagedLimits kLimits = {.tokens = 7, .pages = 9, .page_tokens = 4};

class PagedBatchCpuTest : public ::testing::Test {
 protected:
  // Three sequences, the middle one without tokens.
  StepBatch Batch() { return StepBatch(bed_.device(), pages_, {{3, 2}, {0, 0}, {0, 5}}); }

  std::string Message(StepBatch& batch) {
    return std::string(CheckPagedBatchValues("Op", batch.view(), kLimits).message());
  }

  OpTestBed bed_{DeviceUnderTest{.name = "cpu"}};
  ScatteredPages pages_{{9, 0, 12}, 4, 1};
};

TEST_F(PagedBatchCpuTest, PlacesTokens) {
  StepBatch step = Batch();
  ASSERT_EQ(Message(step), "");
  const PagedBatchCpu batch(step.view());
  ASSERT_EQ(batch.sequences(), 3);
  EXPECT_EQ(batch.tokens(), 7);
  const std::vector<std::pair<int64_t, int64_t>> want = {{0, 3}, {0, 4}, {2, 0}, {2, 1},
                                                         {2, 2}, {2, 3}, {2, 4}};
  for (int64_t t = 0; t < 7; ++t) {
    const auto [b, position] = want[static_cast<size_t>(t)];
    EXPECT_EQ(batch.SequenceOf(t), b);
    EXPECT_EQ(batch.PositionOf(t, b), position);
    EXPECT_EQ(batch.TokenOfZero(b) + position, t);
  }
  EXPECT_EQ(batch.FirstPosition(0), 3);
  EXPECT_EQ(batch.EndPosition(0), 5);
  EXPECT_FALSE(batch.has_tokens(1));
  EXPECT_EQ(batch.Pages(2)[1], pages_.pages(2)[1]);
}

TEST_F(PagedBatchCpuTest, RefusesWhatIsOutOfRange) {
  StepBatch a = Batch();
  a.q_start().Set({1, 2, 2, 7});
  EXPECT_EQ(Message(a), "Op: q_start[0] = 1, want 0");
  a.q_start().Set({0, 2, 1, 7});
  EXPECT_EQ(Message(a), "Op: q_start[2] = 1, want 2 to 7");
  a.q_start().Set({0, 2, 2, 8});
  EXPECT_EQ(Message(a), "Op: q_start[3] = 8, want 2 to 7");
  StepBatch b = Batch();
  b.kv_len().Set({1, -5, 5});
  EXPECT_EQ(Message(b), "Op: kv_len[0] = 1, want 2 to 12");
  b.kv_len().Set({5, 1000, 13});
  EXPECT_EQ(Message(b), "Op: kv_len[2] = 13, want 5 to 12");
  StepBatch c = Batch();
  c.table().Set({0, 9, 0, -1, -1, -1, 0, -1, 0});
  EXPECT_EQ(Message(c), "Op: page_table[0, 1] = 9, want 0 to 8");
  c.table().Set({0, 1, -1, -1, -1, -1, 0, -1, 0});
  EXPECT_EQ(Message(c), "Op: page_table[2, 1] = -1, want 0 to 8");
  c.table().Set({0, 1, -1, -1, -1, -1, 0, 8, -1});  // the third page is not reached
  EXPECT_EQ(Message(c), "");
}

}  // namespace
}  // namespace millrace
