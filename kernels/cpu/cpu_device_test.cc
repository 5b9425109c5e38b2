#include "kernels/cpu/cpu_device.h"

#include <cstring>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace millrace {
namespace {

std::unique_ptr<CpuDevice> Make(int threads = 1) {
  auto device = CpuDevice::Create(threads);
  EXPECT_TRUE(device.ok()) << device.status();
  return std::move(device).value();
}

bool Contains(const absl::Status& status, const std::string& text) {
  return std::string(status.message()).find(text) != std::string::npos;
}

TEST(CpuDeviceTest, RefusesThreadCountsAndInstructionSetsItCannotHave) {
  for (int threads : {-1, 0, ThreadPool::kMaxThreads + 1}) {
    const absl::Status status = CpuDevice::Create(threads).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Contains(status, "want 1 to 1024")) << status;
  }
  if (DetectIsa() < CpuIsa::kAvx512) {
    const absl::Status status = CpuDevice::Create(1, CpuIsa::kAvx512).status();
    EXPECT_TRUE(Contains(status, "this machine has no avx512")) << status;
  }
}

TEST(CpuDeviceTest, AllocatesZeroedAlignedMemory) {
  const auto device = Make();
  for (int64_t bytes : {int64_t{1}, int64_t{257}, CpuDevice::kHugeBytes - 1, CpuDevice::kHugeBytes,
                        3 * CpuDevice::kHugeBytes + 5}) {
    for (int round = 0; round < 2; ++round) {  // the second may get the first one's memory back
      auto buffer = device->Allocate(bytes);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      EXPECT_EQ(buffer->bytes(), bytes);
      const uintptr_t address = reinterpret_cast<uintptr_t>(buffer->data());
      EXPECT_EQ(address % (bytes >= CpuDevice::kHugeBytes ? CpuDevice::kHugeBytes : 256), 0u);
      char* data = static_cast<char*>(buffer->data());
      for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0) << i;
      std::memset(data, 1, static_cast<size_t>(bytes));
    }
  }
}

TEST(CpuDeviceTest, EmptyAndNegativeSizes) {
  const auto device = Make();
  auto empty = device->Allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_EQ(device->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CpuDeviceTest, RefusesWhatItDoesNotHaveAndCountsUntouchedMemory) {
  const auto device = Make();
  const int64_t free = device->Properties()->free_bytes;
  const absl::Status status = device->Allocate(int64_t{1} << 50).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Contains(status, "1125899906842624 bytes asked for")) << status;
  // Two halves-and-more of what is free do not both fit, though neither is touched.
  auto first = device->Allocate(free * 6 / 10);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(device->Allocate(free * 6 / 10).status().code(), absl::StatusCode::kResourceExhausted);
  *first = Buffer();
  EXPECT_TRUE(device->Allocate(free * 6 / 10).ok());
}

TEST(CpuDeviceTest, MovedBuffersAreFreedOnce) {
  const auto device = Make();
  Buffer a = std::move(device->Allocate(100)).value();
  Buffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_NE(b.data(), nullptr);
  a = std::move(b);
  EXPECT_NE(a.data(), nullptr);
}

TEST(CpuDeviceTest, Copies) {
  const auto device = Make();
  Buffer buffer = std::move(device->Allocate(8)).value();
  int64_t in = 42, out = 0;
  ASSERT_TRUE(device->Copy(buffer.data(), &in, 8, CopyKind::kHostToDevice, Stream{}).ok());
  ASSERT_TRUE(device->Copy(&out, buffer.data(), 8, CopyKind::kDeviceToHost, Stream{}).ok());
  EXPECT_EQ(out, 42);
  EXPECT_TRUE(device->Copy(nullptr, nullptr, 0, CopyKind::kDeviceToDevice, Stream{}).ok());
  EXPECT_FALSE(device->Copy(&out, &in, -8, CopyKind::kDeviceToDevice, Stream{}).ok());
  EXPECT_TRUE(device->Synchronize(Stream{}).ok());
}

TEST(CpuDeviceTest, DescribesItself) {
  const auto device = Make(2);
  const auto properties = device->Properties();
  ASSERT_TRUE(properties.ok());
  EXPECT_NE(properties->name.find("(2 threads, " + std::string(IsaName(DetectIsa()))),
            std::string::npos)
      << properties->name;
  EXPECT_GT(properties->total_bytes, 0);
  EXPECT_EQ(properties->multiprocessors, 2);
  EXPECT_EQ(device->thread_pool()->threads(), 2);
  EXPECT_EQ(device->type(), DeviceType::kCpu);
}

}  // namespace
}  // namespace millrace
