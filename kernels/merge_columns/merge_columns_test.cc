#include "kernels/merge_columns/merge_columns.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/guarded_tensor.h"
#include "kernels/testing/op_test.h"

namespace millrace {
namespace {

struct Case {
  int64_t rows;
  std::vector<int64_t> columns;
  int64_t row_padding;
};

const Case kCases[] = {
    {1, {5}, 0},
    {3, {5, 4}, 0},
    {2, {4, 8}, 4},
    {7, {64128, 64128}, 0},
    {5, {0, 3, 0}, 2},
    {4, {4096, 4}, 0},
    {3, {4097, 4096, 1}, 1},
    {0, {3, 4}, 0},
    {64, {8, 4, 12}, 0},
    {2, {1, 1, 1, 1, 1, 1, 1}, 0},
    {6, {4096, 0, 4096}, 8},
};

class MergeColumnsTest : public OpTest {
 protected:
  absl::Status Merge(const GuardedTensor& parts, const std::vector<int64_t>& columns,
                     const GuardedTensor& y) {
    return MergeColumns(ctx(), {.parts = parts.view(), .columns = columns, .y = y.view()});
  }
};

TEST_P(MergeColumnsTest, PutsPartsSideBySide) {
  for (const Case& c : kCases) {
    const int64_t total = std::accumulate(c.columns.begin(), c.columns.end(), int64_t{0});
    SCOPED_TRACE(testing::Message() << c.rows << "x" << total << " of " << c.columns.size());
    GuardedTensor parts(device(), DType::kF32, {c.rows, total});
    GuardedTensor y(device(), DType::kF32, {c.rows, total}, c.row_padding);
    // Every value says where it belongs.
    std::vector<double> from, want(static_cast<size_t>(c.rows * total));
    int64_t first = 0;
    for (const int64_t columns : c.columns) {
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) {
          const int64_t at = r * total + first + i;
          from.push_back(static_cast<double>(at));
          want[static_cast<size_t>(at)] = static_cast<double>(at);
        }
      }
      first += columns;
    }
    parts.Set(from);
    ASSERT_TRUE(Merge(parts, c.columns, y).ok());
    ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
    EXPECT_EQ(y.Get(), want);
    EXPECT_TRUE(parts.GuardsIntact());
    EXPECT_TRUE(y.GuardsIntact());
  }
}

TEST_P(MergeColumnsTest, MovesBitsAndNotNumbers) {
  TestRng rng(11);
  GuardedTensor parts(device(), DType::kF32, {4, 8});
  GuardedTensor y(device(), DType::kF32, {4, 8});
  parts.SetNormal(rng);
  ASSERT_TRUE(Merge(parts, {8}, y).ok());
  ASSERT_TRUE(device().Synchronize(ctx().stream).ok());
  EXPECT_EQ(y.GetBytes(), parts.GetBytes());
}

TEST_P(MergeColumnsTest, RefusesWhatDoesNotFit) {
  GuardedTensor parts(device(), DType::kF32, {2, 8});
  GuardedTensor y(device(), DType::kF32, {2, 8});
  EXPECT_EQ(Merge(parts, {4, 3}, y).message(), "MergeColumns: the parts have 7 columns, y has 8");
  EXPECT_EQ(Merge(parts, {9, -1}, y).message(),
            "MergeColumns: a part has a negative number of columns");
  EXPECT_EQ(Merge(parts, std::vector<int64_t>(65, 0), y).message(),
            "MergeColumns: 65 parts, at most 64");
  GuardedTensor padded(device(), DType::kF32, {2, 8}, 1);
  EXPECT_EQ(Merge(padded, {8}, y).message(), "MergeColumns: parts must be contiguous");
  GuardedTensor bf16(device(), DType::kBF16, {2, 8});
  EXPECT_EQ(Merge(parts, {8}, bf16).message(), "MergeColumns: y has dtype bfloat16, want float32");
  GuardedTensor rows(device(), DType::kF32, {3, 8});
  EXPECT_EQ(Merge(parts, {8}, rows).message(), "MergeColumns: y.dim(0) = 3, want 2");
}

INSTANTIATE_TEST_SUITE_P(Devices, MergeColumnsTest,
                         ::testing::ValuesIn(DevicesUnderTest(CudaRow::kPresent)), DeviceName);

}  // namespace
}  // namespace millrace
