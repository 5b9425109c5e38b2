#include "kernels/bench/bench.h"

#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_device.h"

namespace millrace {
namespace {

TEST(MeasureRunsTest, CountsUpFromOneUntimedCall) {
  std::vector<int64_t> calls;
  const BenchTime time = MeasureRuns(0, [&](int64_t i) { calls.push_back(i); });
  EXPECT_EQ(calls, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_LE(time.min_seconds, time.median_seconds);
  EXPECT_GE(time.min_seconds, 0);
}

TEST(CompareRunsTest, IsAboveOneWhenThePeerIsSlower) {
  volatile int64_t sink = 0;
  const auto spin = [&](int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) sink = sink + i;
  };
  const BenchRatio ratio =
      CompareRuns([&](int64_t) { spin(20'000); }, [&](int64_t) { spin(200'000); });
  EXPECT_GT(ratio.median, 2);  // ten times the work
  EXPECT_LE(ratio.low, ratio.median);
  EXPECT_LE(ratio.median, ratio.high);
}

TEST(CpuCeilingTest, IsMeasuredWithEachInstructionSet) {
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa > DetectIsa()) continue;
    auto device = CpuDevice::Create(2, isa);
    ASSERT_TRUE(device.ok());
    const CpuCeiling ceiling = MeasureCpuCeiling(*(*device)->thread_pool(), **device);
    EXPECT_TRUE(std::isfinite(ceiling.read_bytes_per_second));
    EXPECT_GT(ceiling.read_bytes_per_second, 0);
    EXPECT_GT(ceiling.flops_per_second, 0);
  }
}

}  // namespace
}  // namespace millrace
