#include "kernels/embedding/embedding.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Case {
  int64_t tokens, rows, width, padding;
  int32_t first_id;
};
constexpr Case kCases[] = {{0, 5, 8, 0, 0},      {1, 1, 1, 0, 0},     {13, 17, 137, 3, 0},
                           {9, 10, 64, 0, 5},    {1000, 50, 7, 1, 2}, {70, 300, 576, 0, 100},
                           {33, 40, 4104, 8, 0}, {3, 9, 4096, 4, 1}};

class EmbeddingTest : public OpTest {
 protected:
  void Check(const Case& c, DType table_dtype, DType y_dtype) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << " of " << c.rows << "x" << c.width << " from " << c.first_id);
    TestRng rng(static_cast<uint64_t>(c.tokens + c.rows));
    GuardedTensor ids(device(), DType::kI32, {c.tokens});
    GuardedTensor table(device(), table_dtype, {c.rows, c.width});
    GuardedTensor y(device(), y_dtype, {c.tokens, c.width}, c.padding);
    ids.SetIntegers(rng, 0, c.first_id + c.rows + 3);
    table.SetNormal(rng);
    ASSERT_TRUE(
        Embedding(ctx(),
                  {.ids = ids.view(), .table = table.view(), .first_id = c.first_id, .y = y.view()})
            .ok());
    const std::vector<double> rows = table.Get();
    GuardedTensor expected(device(), y_dtype, {c.tokens, c.width});
    std::vector<double> values;
    for (double id : ids.Get()) {
      const int64_t row = static_cast<int64_t>(id) - c.first_id;
      for (int64_t i = 0; i < c.width; ++i) {
        values.push_back(row >= 0 && row < c.rows ? rows[row * c.width + i] : 0.0);
      }
    }
    expected.Set(values);
    EXPECT_EQ(y.GetBytes(), expected.GetBytes());
    EXPECT_TRUE(y.GuardsIntact());
    EXPECT_TRUE(table.GuardsIntact());
  }
};

TEST_P(EmbeddingTest, CopiesRowsOfThisRankAndZerosTheOthers) {
  for (const Case& c : kCases) {
    for (DType table : {DType::kF32, DType::kBF16}) {
      for (DType y : {DType::kF32, DType::kBF16}) Check(c, table, y);
    }
  }
}

TEST_P(EmbeddingTest, NoIdReachesOutsideTheTable) {
  GuardedTensor ids(device(), DType::kI32, {4});
  GuardedTensor table(device(), DType::kF32, {2, 3});
  GuardedTensor y(device(), DType::kF32, {4, 3});
  ids.Set({-1, 2, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()});
  table.SetAll(1);
  ASSERT_TRUE(Embedding(ctx(), {.ids = ids.view(), .table = table.view(), .y = y.view()}).ok());
  EXPECT_EQ(y.Get(), std::vector<double>(12, 0.0));
}

TEST_P(EmbeddingTest, NegativeIdsNameSlots) {
  GuardedTensor ids(device(), DType::kI32, {6});
  GuardedTensor last_tokens(device(), DType::kI32, {3});
  GuardedTensor table(device(), DType::kF32, {3, 2});
  GuardedTensor y(device(), DType::kF32, {6, 2});
  table.Set({10, 11, 20, 21, 30, 31});
  last_tokens.Set({6, -1, 5});
  // A token, slots 2, 0 and 1 (which holds none), and two slots that are not there.
  ids.Set({7, -3, -1, -2, -4, std::numeric_limits<int32_t>::min()});
  EmbeddingArgs args{.ids = ids.view(),
                     .last_tokens = last_tokens.view(),
                     .table = table.view(),
                     .first_id = 5,
                     .y = y.view()};
  ASSERT_TRUE(Embedding(ctx(), args).ok());
  EXPECT_EQ(y.Get(), (std::vector<double>{30, 31, 10, 11, 20, 21, 0, 0, 0, 0, 0, 0}));
  last_tokens.Set({5, 0, 7});  // the next step; 0 belongs to another rank
  ASSERT_TRUE(Embedding(ctx(), args).ok());
  EXPECT_EQ(y.Get(), (std::vector<double>{30, 31, 30, 31, 10, 11, 0, 0, 0, 0, 0, 0}));
  // A slot with a negative id names no further slot.
  args.first_id = 0;
  last_tokens.Set({-3, -1, 1});
  ASSERT_TRUE(Embedding(ctx(), args).ok());
  EXPECT_EQ(y.Get(), (std::vector<double>{0, 0, 20, 21, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_P(EmbeddingTest, RefusesWhatDoesNotFit) {
  GuardedTensor ids(device(), DType::kI32, {2});
  GuardedTensor table(device(), DType::kF32, {4, 3});
  GuardedTensor y(device(), DType::kF32, {2, 5});
  EXPECT_EQ(Embedding(ctx(), {.ids = ids.view(), .table = table.view(), .y = y.view()}).message(),
            "Embedding: y.dim(1) = 5, want 3");
  GuardedTensor good(device(), DType::kF32, {2, 3});
  EXPECT_EQ(
      Embedding(ctx(), {.ids = ids.view(), .table = table.view(), .first_id = -1, .y = good.view()})
          .message(),
      "Embedding: first_id must not be negative");
  GuardedTensor wide(device(), DType::kI64, {2});
  EXPECT_EQ(
      Embedding(ctx(), {.ids = wide.view(), .table = table.view(), .y = good.view()}).message(),
      "Embedding: ids has dtype int64, want int32");
  EXPECT_EQ(
      Embedding(
          ctx(),
          {.ids = ids.view(), .last_tokens = wide.view(), .table = table.view(), .y = good.view()})
          .message(),
      "Embedding: last_tokens has dtype int64, want int32");
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
