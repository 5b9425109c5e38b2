#include "kernels/bench/bench_bed.h"

#include <set>

#include "gtest/gtest.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {
namespace {

TEST(BenchBedTest, OnTheCpuEveryCallGetsTheSameOperand) {
  auto bed = BenchBed::OnCpu(1);
  ASSERT_TRUE(bed.ok()) << bed.status();
  EXPECT_FALSE((*bed)->on_cuda());
  const BenchOperand x = (*bed)->Operand((*bed)->activations(), {3, 5});
  EXPECT_EQ(x.At(0).data, x.At(7).data);
  float low = 0, high = 0;
  for (int i = 0; i < 15; ++i) {
    low = std::min(low, x.At(0).as<float>()[i]);
    high = std::max(high, x.At(0).as<float>()[i]);
  }
  EXPECT_LT(low, high);
  EXPECT_GE(low, -1);
  EXPECT_LT(high, 1);
  const BenchOperand ids = (*bed)->Integers(DType::kI32, {7, -1});
  EXPECT_EQ(ids.At(3).as<int32_t>()[1], -1);
  int64_t calls = 0;
  const BenchTime time = (*bed)->Row("a row", {.bytes = 1}, [&](int64_t) { ++calls; });
  EXPECT_GT(calls, 5);
  EXPECT_GE(time.median_seconds, time.min_seconds);
}

TEST(BenchBedTest, OnAGpuOperandsRotate) {
  if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU";
  auto bed = BenchBed::OnCuda();
  ASSERT_TRUE(bed.ok()) << bed.status();
  const BenchOperand x = (*bed)->Operand(DType::kBF16, {1 << 20});
  std::set<const void*> seen;
  for (int64_t i = 0; i < 100; ++i) seen.insert(x.At(i).data);
  EXPECT_GT(seen.size(), 64u);
  const BenchTime time = (*bed)->Row("copy of 2 MiB", {.bytes = 4 << 20}, [&](int64_t i) {
    const absl::Status status = (*bed)->device().Copy(
        x.At(i + 1).data, x.At(i).data, 2 << 20, CopyKind::kDeviceToDevice, (*bed)->ctx().stream);
    ASSERT_TRUE(status.ok()) << status;
  });
  EXPECT_GT(time.min_seconds, 0);
}

TEST(BenchBedTest, RefusesUnknownArguments) {
  const char* args[] = {"bench", "--device=tpu"};
  EXPECT_EQ(BenchMain(2, const_cast<char**>(args), [](BenchBed&) { FAIL(); }), 2);
}

}  // namespace
}  // namespace millrace
