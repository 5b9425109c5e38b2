#include "kernels/testing/op_test.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/core/check.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"

namespace millrace {

std::vector<DeviceUnderTest> DevicesUnderTest(CudaRow cuda) {
  std::vector<DeviceUnderTest> devices;
  const auto add_cpu = [&](CpuIsa isa, int threads) {
    devices.push_back({.name = absl::StrCat("cpu_", std::string(IsaName(isa)), "_t", threads),
                       .type = DeviceType::kCpu,
                       .threads = threads,
                       .isa = isa});
  };
  for (CpuIsa isa : {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    if (isa <= DetectIsa()) add_cpu(isa, 2);
  }
  add_cpu(DetectIsa(), 1);
  add_cpu(DetectIsa(), 3);
  if (cuda == CudaRow::kPresent && CudaDeviceCount() > 0) {
    devices.push_back({.name = "cuda", .type = DeviceType::kCuda});
  }
  return devices;
}

std::unique_ptr<Device> MakeDevice(const DeviceUnderTest& device) {
  if (device.type == DeviceType::kCuda) {
    auto gpu = CreateCudaDevice(0);
    MR_CHECK(gpu.ok());
    return std::move(gpu).value();
  }
  auto made = CpuDevice::Create(device.threads, device.isa);
  MR_CHECK(made.ok());
  return std::move(made).value();
}

OpTestBed::OpTestBed(const DeviceUnderTest& device, int64_t workspace_bytes)
    : device_(MakeDevice(device)) {
  auto buffer = device_->Allocate(workspace_bytes);
  MR_CHECK(buffer.ok());
  buffer_ = std::move(buffer).value();
  workspace_ = Workspace(buffer_.data(), buffer_.bytes());
}

}  // namespace millrace
