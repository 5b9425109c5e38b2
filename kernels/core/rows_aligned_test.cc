#include "kernels/core/rows_aligned.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TensorView View(int64_t address, DType dtype, std::initializer_list<int64_t> shape) {
  return TensorView::Of(reinterpret_cast<void*>(address), dtype, shape, DeviceType::kCuda);
}

TEST(RowsAlignedTest, AddressAndEveryStrideCount) {
  EXPECT_TRUE(RowsAligned(View(64, DType::kBF16, {3, 4, 8})));
  EXPECT_FALSE(RowsAligned(View(72, DType::kBF16, {3, 4, 8})));
  EXPECT_FALSE(RowsAligned(View(64, DType::kBF16, {3, 4, 4})));
  EXPECT_TRUE(RowsAligned(View(64, DType::kF32, {3, 4, 4})));
  TensorView apart = View(64, DType::kBF16, {3, 4, 8});
  apart.strides[0] += 4;
  EXPECT_FALSE(RowsAligned(apart));
}

TEST(RowsAlignedTest, StridesThatAreNotUsedDoNot) {
  EXPECT_TRUE(RowsAligned(View(64, DType::kBF16, {1, 5})));
  EXPECT_TRUE(RowsAligned(View(64, DType::kBF16, {5})));
  EXPECT_FALSE(RowsAligned(View(64, DType::kBF16, {2, 5})));
}

TEST(RowsAlignedTest, EightsAreOfElements) {
  EXPECT_TRUE(RowsOfEights(View(8, DType::kU8, {3, 8})));
  EXPECT_FALSE(RowsOfEights(View(8, DType::kBF16, {3, 8})));
  EXPECT_FALSE(RowsOfEights(View(8, DType::kU8, {3, 12})));
}

}  // namespace
}  // namespace millrace
