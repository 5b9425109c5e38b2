#include "tools/common/device_name.h"

#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace {

absl::StatusOr<DeviceChoice> ParseDevice(const std::string& text) {
  constexpr std::string_view kCuda = "cuda:";
  constexpr int32_t kMostGpus = 1024;
  if (text == "cpu") return DeviceChoice{};
  if (text == "cuda") return DeviceChoice{.type = DeviceType::kCuda, .ordinal = 0};
  int32_t ordinal = 0;
  if (text.rfind(kCuda, 0) == 0 && absl::SimpleAtoi(text.substr(kCuda.size()), &ordinal) &&
      ordinal >= 0 && ordinal < kMostGpus) {
    return DeviceChoice{.type = DeviceType::kCuda, .ordinal = ordinal};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--device ", text, ": want cpu, cuda or cuda:N, N a GPU's number"));
}

}  // namespace millrace
