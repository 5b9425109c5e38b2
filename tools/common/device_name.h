// What a --device flag says.
#ifndef TOOLS_COMMON_DEVICE_NAME_H_
#define TOOLS_COMMON_DEVICE_NAME_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/core/device.h"

namespace millrace {

struct DeviceChoice {
  DeviceType type = DeviceType::kCpu;
  int32_t ordinal = 0;  // CUDA
};

// "cpu", "cuda" (the first GPU) or "cuda:N". InvalidArgument naming the flag otherwise; whether
// there is such a GPU is seen when the device is made.
absl::StatusOr<DeviceChoice> ParseDevice(const std::string& text);

}  // namespace millrace

#endif  // TOOLS_COMMON_DEVICE_NAME_H_
