#include "kernels/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace millrace {
namespace {

TEST(CudaDevice, MissingGpuIsAnError) {
  const auto device = CreateCudaDevice(CudaDeviceCount());
  EXPECT_FALSE(device.ok());
  EXPECT_FALSE(CreateCudaDevice(-1).ok());
}

class CudaDeviceOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "no GPU on this machine";
    device_ = *CreateCudaDevice(0);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceOnGpu, SaysWhatItIs) {
  const DeviceProperties p = *device_->Properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_NE(CudaBusId(0).value().find(':'), std::string::npos);
  EXPECT_GE(p.compute_capability, 80);
  EXPECT_GT(p.multiprocessors, 0);
  EXPECT_GT(p.free_bytes, 0);
  EXPECT_LE(p.free_bytes, p.total_bytes);
}

TEST_F(CudaDeviceOnGpu, MemoryIsZeroFilledAndCopiesRoundTrip) {
  constexpr int64_t kBytes = 1000;
  const Buffer a = *device_->Allocate(kBytes);
  const Buffer b = *device_->Allocate(kBytes);
  const Stream stream = *device_->CreateStream();
  std::vector<uint8_t> host(kBytes, 0xee);
  ASSERT_TRUE(device_->Copy(host.data(), a.data(), kBytes, CopyKind::kDeviceToHost, stream).ok());
  ASSERT_TRUE(device_->Synchronize(stream).ok());
  EXPECT_EQ(host, std::vector<uint8_t>(kBytes, 0));
  for (int64_t i = 0; i < kBytes; ++i) host[i] = static_cast<uint8_t>(i * 7);
  const std::vector<uint8_t> sent = host;
  ASSERT_TRUE(device_->Copy(a.data(), host.data(), kBytes, CopyKind::kHostToDevice, stream).ok());
  ASSERT_TRUE(device_->Copy(b.data(), a.data(), kBytes, CopyKind::kDeviceToDevice, stream).ok());
  ASSERT_TRUE(device_->Synchronize(stream).ok());
  host.assign(kBytes, 0);
  ASSERT_TRUE(device_->Copy(host.data(), b.data(), kBytes, CopyKind::kDeviceToHost, stream).ok());
  ASSERT_TRUE(device_->Synchronize(stream).ok());
  EXPECT_EQ(host, sent);
  device_->DestroyStream(stream);
}

TEST_F(CudaDeviceOnGpu, AGraphIsReplayedWithWhatMemoryHoldsThen) {
  constexpr int64_t kBytes = 4096;
  const Buffer host = *device_->AllocateHost(kBytes);
  const Buffer a = *device_->Allocate(kBytes);
  const Buffer b = *device_->Allocate(kBytes);
  const Stream stream = *device_->CreateStream();
  const Event done = *device_->CreateEvent();
  ASSERT_TRUE(device_->has_graphs());
  ASSERT_TRUE(device_->BeginCapture(stream).ok());
  ASSERT_TRUE(device_->Copy(a.data(), host.data(), kBytes, CopyKind::kHostToDevice, stream).ok());
  ASSERT_TRUE(device_->Copy(b.data(), a.data(), kBytes, CopyKind::kDeviceToDevice, stream).ok());
  const Graph graph = *device_->EndCapture(stream);
  for (uint8_t value : {0x11, 0x22}) {
    std::memset(host.data(), value, kBytes);
    ASSERT_TRUE(device_->Launch(graph, stream).ok());
    ASSERT_TRUE(device_->Record(done, stream).ok());
    ASSERT_TRUE(device_->Wait(done).ok());
    std::vector<uint8_t> got(kBytes);
    ASSERT_TRUE(device_->Copy(got.data(), b.data(), kBytes, CopyKind::kDeviceToHost, stream).ok());
    ASSERT_TRUE(device_->Synchronize(stream).ok());
    EXPECT_EQ(got, std::vector<uint8_t>(kBytes, value));
  }
  device_->DestroyStream(stream);
}

TEST_F(CudaDeviceOnGpu, ABrokenCaptureFailsAndLeavesTheStreamUsable) {
  const Stream stream = *device_->CreateStream();
  ASSERT_TRUE(device_->BeginCapture(stream).ok());
  EXPECT_FALSE(device_->Synchronize(stream).ok());  // cannot be captured
  EXPECT_FALSE(device_->EndCapture(stream).ok());
  EXPECT_TRUE(device_->Synchronize(stream).ok());
  device_->DestroyStream(stream);
}

TEST_F(CudaDeviceOnGpu, OneStreamWaitsForAnother) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const Buffer host = *device_->AllocateHost(kBytes);
  const Buffer a = *device_->Allocate(kBytes);
  const Stream first = *device_->CreateStream();
  const Stream second = *device_->CreateStream();
  const Event copied = *device_->CreateEvent();
  std::memset(host.data(), 7, kBytes);
  ASSERT_TRUE(device_->Copy(a.data(), host.data(), kBytes, CopyKind::kHostToDevice, first).ok());
  ASSERT_TRUE(device_->Record(copied, first).ok());
  ASSERT_TRUE(device_->StreamWait(second, copied).ok());
  uint8_t last = 0;
  ASSERT_TRUE(device_
                  ->Copy(&last, static_cast<char*>(a.data()) + kBytes - 1, 1,
                         CopyKind::kDeviceToHost, second)
                  .ok());
  ASSERT_TRUE(device_->Synchronize(second).ok());
  EXPECT_EQ(last, 7);
  device_->DestroyStream(first);
  device_->DestroyStream(second);
}

TEST_F(CudaDeviceOnGpu, TooLargeAnAllocationSaysHowMuchIsFreeAndHarmsNothing) {
  const auto buffer = device_->Allocate(int64_t{1} << 50);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(buffer.status().message().find("are free"), std::string::npos);
  EXPECT_TRUE(device_->Allocate(1 << 20).ok());
  EXPECT_EQ(device_->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Allocate(0)->data(), nullptr);
}

}  // namespace
}  // namespace millrace
