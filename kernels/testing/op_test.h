// The fixture of every op's test: one body, run on each device of this machine.
//
//   class RopeTest : public OpTest {};
//   TEST_P(RopeTest, RotatesPairs) { GuardedTensor x(device(), ...); Rope(ctx(), {...}); }
//   INSTANTIATE_TEST_SUITE_P(Devices, RopeTest, ::testing::ValuesIn(DevicesUnderTest()),
//   DeviceName);
#ifndef KERNELS_TESTING_OP_TEST_H_
#define KERNELS_TESTING_OP_TEST_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/core/device.h"
#include "kernels/core/op_context.h"
#include "kernels/cpu/isa.h"

namespace millrace {

struct DeviceUnderTest {
  std::string name;  // letters, digits and underscores
  DeviceType type = DeviceType::kCpu;
  int threads = 1;               // CPU
  CpuIsa isa = CpuIsa::kScalar;  // CPU
};

inline void PrintTo(const DeviceUnderTest& d, std::ostream* os) { *os << d.name; }

// Whether an op has a CUDA row that its test should run, where a GPU is.
enum class CudaRow : uint8_t { kMissing, kPresent };

// The CPU with each instruction set that this machine has (two threads), and with one and three
// threads of the best; then "cuda", where the op has a row for it and the machine a GPU.
std::vector<DeviceUnderTest> DevicesUnderTest(CudaRow cuda = CudaRow::kMissing);

inline std::string DeviceName(const ::testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

std::unique_ptr<Device> MakeDevice(const DeviceUnderTest& device);

// A device with a workspace.
class OpTestBed final {
 public:
  explicit OpTestBed(const DeviceUnderTest& device, int64_t workspace_bytes = kWorkspaceBytes);

  Device& device() { return *device_; }
  Workspace& workspace() { return workspace_; }
  OpContext ctx() { return OpContext{*device_, Stream{}, workspace_}; }

  static constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;

 private:
  std::unique_ptr<Device> device_;
  Buffer buffer_;
  Workspace workspace_;
};

class OpTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  Device& device() { return bed_.device(); }
  OpContext ctx() { return bed_.ctx(); }

 private:
  OpTestBed bed_{GetParam()};
};

}  // namespace millrace

#endif  // KERNELS_TESTING_OP_TEST_H_
