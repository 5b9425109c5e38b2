#include <memory>
#include <vector>

#include "engine/parallel/communicator.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

TEST(SingleRankTest, CollectivesAreIdentities) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  SingleRank one(*device);
  std::vector<float> x = {1, 2, 3};
  std::vector<float> y(3);
  const TensorView view = TensorView::Of(x.data(), DType::kF32, {3});
  EXPECT_TRUE(one.AllReduceSum(view, {}).ok());
  EXPECT_TRUE(one.Broadcast(view, 0, {}).ok());
  EXPECT_TRUE(one.Barrier({}).ok());
  const int64_t count = 3;
  EXPECT_TRUE(one.AllGather(view, &count, TensorView::Of(y.data(), DType::kF32, {3}), {}).ok());
  EXPECT_EQ(y, x);
  std::vector<float> z(3);
  const TensorView to = TensorView::Of(z.data(), DType::kF32, {3});
  EXPECT_TRUE(one.AllToAll(view, &count, to, &count, {}).ok());
  EXPECT_EQ(z, x);
  EXPECT_EQ(x, (std::vector<float>{1, 2, 3}));
}

TEST(SingleRankTest, RefusesWhatAGroupOfOneCannotDo) {
  const std::unique_ptr<CpuDevice> device = *CpuDevice::Create(1);
  SingleRank one(*device);
  std::vector<float> x(3);
  const TensorView view = TensorView::Of(x.data(), DType::kF32, {3});
  EXPECT_FALSE(one.Broadcast(view, 1, {}).ok());
  const int64_t count = 2;
  EXPECT_FALSE(one.AllGather(view, &count, view, {}).ok());
  const int64_t three = 3;
  EXPECT_FALSE(one.AllToAll(view, &three, view, &count, {}).ok());
}

}  // namespace
}  // namespace millrace
